import type { TranslationBundle } from '@jupyterlab/translation';
import React from 'react';
import type { IRefusal } from '../model';
import type { ILeaseChange, ILeasePart } from '../pool';
import { gibibytes, percent, withUnit } from '../units';

interface IQuotaControlProps {
  /** What the lease has of each of its devices, one at least. */
  parts: readonly ILeasePart[];
  /** Whose quota it is; part of the fields' labels. */
  name: string;
  /** What the server said of the last attempt. */
  refusal: IRefusal | null;
  onResize: (change: ILeaseChange) => Promise<boolean>;
  /** Escape: what the server said need not be shown any longer. */
  onDismiss: () => void;
  trans: TranslationBundle;
}

/**
 * Resizes memory and compute of a running kernel. The fields follow the lease until they are edited; Enter or "Apply" sends
 * what was edited, Escape takes it back. With several devices a value is meant for each: the server gives each as much of it
 * as the device has, so the largest part is what would be sent back unchanged.
 */
export function QuotaControl(props: IQuotaControlProps): JSX.Element {
  const { parts, name, refusal, onResize, onDismiss, trans } = props;
  const [memory, setMemory] = React.useState<string | null>(null);
  const [compute, setCompute] = React.useState<string | null>(null);
  const [busy, setBusy] = React.useState(false);
  const errorId = React.useId();
  const memoryNow = Math.max(...parts.map(part => part.memory));
  const computeNow = Math.max(...parts.map(part => part.compute));
  const several = parts.length > 1;
  const edited = memory !== null || compute !== null;

  const revert = () => {
    setMemory(null);
    setCompute(null);
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.key === 'Escape') {
      revert();
      onDismiss();
    }
  };
  const apply = async (event: React.FormEvent) => {
    event.preventDefault();
    if (!edited || busy) {
      return;
    }
    setBusy(true);
    const agreed = await onResize({
      ...(memory !== null && { memory: withUnit(memory, 'GiB') }),
      ...(compute !== null && { compute: withUnit(compute, '%') })
    });
    setBusy(false);
    // A refused value stays in its field, to be corrected.
    if (agreed) {
      revert();
    }
  };

  return (
    <form
      className="jp-vgpu-Quota"
      aria-label={trans.__('Quota of %1', name)}
      onSubmit={apply}
      onKeyDown={onKeyDown}
    >
      <Field
        label={several ? trans.__('Memory each') : trans.__('Memory')}
        description={
          several
            ? trans.__(
                'Memory limit of %1 on each of its GPUs in GiB; another unit may be written out',
                name
              )
            : trans.__('Memory limit of %1 in GiB; another unit may be written out', name)
        }
        unit="GiB"
        value={memory ?? gibibytes(memoryNow)}
        onChange={setMemory}
        errorId={refusal?.field === 'memory' ? errorId : undefined}
      />
      <Field
        label={several ? trans.__('Compute each') : trans.__('Compute')}
        description={
          several
            ? trans.__('Compute share of %1 on each of its GPUs in percent of the device', name)
            : trans.__('Compute share of %1 in percent of the device', name)
        }
        unit="%"
        value={compute ?? percent(computeNow)}
        onChange={setCompute}
        errorId={refusal?.field === 'compute' ? errorId : undefined}
      />
      <button
        type="submit"
        className="jp-vgpu-Quota-apply jp-mod-styled jp-mod-accept"
        disabled={!edited || busy}
        aria-label={trans.__('Apply the quota of %1', name)}
      >
        {trans.__('Apply')}
      </button>
      {refusal !== null && (
        <p id={errorId} className="jp-vgpu-Note jp-mod-error" role="alert">
          {refusal.message}
        </p>
      )}
    </form>
  );
}

interface IFieldProps {
  label: string;
  description: string;
  unit: string;
  value: string;
  onChange: (value: string) => void;
  errorId: string | undefined;
}

function Field({ label, description, unit, value, onChange, errorId }: IFieldProps): JSX.Element {
  return (
    <label className="jp-vgpu-Field">
      <span className="jp-vgpu-Field-label">{label}</span>
      <span className="jp-vgpu-Field-box">
        <input
          type="text"
          inputMode="decimal"
          size={5}
          spellCheck={false}
          value={value}
          aria-label={description}
          title={description}
          aria-invalid={errorId !== undefined}
          aria-describedby={errorId}
          onChange={event => onChange(event.target.value)}
        />
        <span aria-hidden="true">{unit}</span>
      </span>
    </label>
  );
}
