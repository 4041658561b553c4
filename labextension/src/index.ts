import { ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { refreshIcon } from '@jupyterlab/ui-components';
import { PoolApi } from './api';
import { PoolEvents } from './events';
import { poolIcon } from './icon';
import { PoolModel } from './model';
import { NotebookRequests, ServerNotebooks } from './notebooks';
import { PoolPanel } from './panel';
import { CommandIDs, IPoolModel } from './tokens';

export { IPoolModel } from './tokens';

const DOMAIN = 'jupyter_vgpu';

/** The pool's state, and its panel in the left sidebar. */
const pool: JupyterFrontEndPlugin<PoolModel> = {
  id: 'jupyter-vgpu:pool',
  description: 'The GPU pool: devices and kernels with their quotas, resized live.',
  autoStart: true,
  provides: IPoolModel,
  optional: [ICommandPalette, ILayoutRestorer, ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): PoolModel => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const { serverSettings } = app.serviceManager;
    const model = new PoolModel({
      api: new PoolApi(serverSettings),
      events: new PoolEvents(serverSettings),
      pollSeconds: 5
    });
    const notebooks = new ServerNotebooks(app.serviceManager);
    const panel = new PoolPanel({ model, notebooks, trans });
    app.shell.add(panel, 'left', { rank: 250, type: 'GPU pool' });
    restorer?.add(panel, panel.id);

    app.commands.addCommand(CommandIDs.show, {
      label: trans.__('Show GPU Pool'),
      icon: poolIcon,
      execute: () => app.shell.activateById(panel.id)
    });
    app.commands.addCommand(CommandIDs.refresh, {
      label: trans.__('Refresh GPU Pool'),
      icon: refreshIcon,
      execute: () => model.refresh()
    });
    for (const command of Object.values(CommandIDs)) {
      palette?.addItem({ command, category: trans.__('GPU') });
    }

    void registry?.load(pool.id).then(settings => {
      const follow = () => {
        model.pollSeconds = settings.get('pollInterval').composite as number;
      };
      follow();
      settings.changed.connect(follow);
    });
    return model;
  }
};

/** Notebook metadata `vgpu` becomes the kernel's lease. */
const notebooks: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-vgpu:notebooks',
  description:
    'Requests the lease that a notebook’s metadata asks for, after start and restart of its kernel.',
  autoStart: true,
  requires: [IPoolModel, INotebookTracker],
  optional: [ISettingRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: PoolModel,
    tracker: INotebookTracker,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load(DOMAIN);
    const requests = new NotebookRequests({
      tracker,
      api: new PoolApi(app.serviceManager.serverSettings),
      model,
      storage: window.sessionStorage,
      notify: message => {
        Notification.error(message, {
          autoClose: false,
          actions: [
            {
              label: trans.__('Show GPU pool'),
              callback: () => void app.commands.execute(CommandIDs.show)
            }
          ]
        });
      },
      malformed: value =>
        trans.__(
          'The notebook’s metadata "vgpu" is %1; it must be an object such as {"memory": "8GiB", "compute": 0.25}.',
          JSON.stringify(value)
        )
    });
    void registry?.load(notebooks.id).then(settings => {
      const follow = () => {
        requests.enabled = settings.get('applyMetadata').composite as boolean;
      };
      follow();
      settings.changed.connect(follow);
    });
  }
};

export default [pool, notebooks];
