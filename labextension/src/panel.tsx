import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { Message } from '@lumino/messaging';
import React from 'react';
import { PoolView } from './components/poolview';
import { poolIcon } from './icon';
import type { PoolModel } from './model';
import type { INotebooks } from './notebooks';

/** The left sidebar's "GPU pool". Draws only while it is shown. */
export class PoolPanel extends ReactWidget {
  constructor(options: { model: PoolModel; notebooks: INotebooks; trans: TranslationBundle }) {
    super();
    this._model = options.model;
    this._notebooks = options.notebooks;
    this._trans = options.trans;
    this.id = 'jupyter-vgpu-pool';
    this.addClass('jp-vgpu-Panel');
    this.title.icon = poolIcon;
    this.title.caption = this._trans.__('GPU pool');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', this._trans.__('GPU pool'));
    this._model.changed.connect(this._redraw, this);
    this._notebooks.changed.connect(this._redraw, this);
  }

  override dispose(): void {
    this._model.changed.disconnect(this._redraw, this);
    this._notebooks.changed.disconnect(this._redraw, this);
    super.dispose();
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._model.visible = true;
    this.update();
  }

  protected override onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this._model.visible = false;
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this._model.visible = this.isVisible;
  }

  protected override onBeforeDetach(msg: Message): void {
    this._model.visible = false;
    super.onBeforeDetach(msg);
  }

  protected override onUpdateRequest(msg: Message): void {
    if (this.isVisible) {
      super.onUpdateRequest(msg);
    }
  }

  protected override render(): JSX.Element {
    return <PoolView model={this._model} notebooks={this._notebooks} trans={this._trans} />;
  }

  private _redraw(): void {
    if (this.isVisible) {
      this.update();
    }
  }

  private readonly _model: PoolModel;
  private readonly _notebooks: INotebooks;
  private readonly _trans: TranslationBundle;
}
