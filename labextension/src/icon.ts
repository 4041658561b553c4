import { LabIcon } from '@jupyterlab/ui-components';

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path d="M2 4h2v17H2z"/>
    <path fill-rule="evenodd" d="M5 6h16a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1H5zm8.5 9a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7z"/>
    <circle cx="13.500" cy="11.500" r="1.700"/>
    <path d="M8 18h7v2H8z"/>
  </g>
</svg>`;

export const poolIcon = new LabIcon({ name: 'jupyter-vgpu:pool', svgstr: SVG });
