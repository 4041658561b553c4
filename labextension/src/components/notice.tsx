import React from 'react';

interface INoticeProps {
  /** `error` is announced at once by a screen reader, `info` when it has time. */
  kind: 'info' | 'error';
  title: string | null;
  children: React.ReactNode;
}

/** What a person should know: an empty state, a simulated pool, a policy error. */
export function Notice({ kind, title, children }: INoticeProps): JSX.Element {
  return (
    <div className={`jp-vgpu-Notice jp-mod-${kind}`} role={kind === 'error' ? 'alert' : 'status'}>
      {title !== null && <strong>{title}</strong>}
      <span>{children}</span>
    </div>
  );
}
