const base = require('@jupyterlab/testing/lib/jest-config');

module.exports = {
  ...base(__dirname),
  reporters: ['default'],
  // JupyterLab's packages are ES modules.
  transformIgnorePatterns: ['/node_modules/(?!@jupyterlab/translation/)']
};
