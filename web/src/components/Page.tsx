import { useEffect, type ReactNode } from "react";

interface Props {
  title: string;
  lead?: ReactNode;
  actions?: ReactNode;
  children?: ReactNode;
}

/** The frame of a page: title, lead and actions on top, then its content. It also sets the title of the tab. */
export function Page({ title, lead, actions, children }: Props) {
  useEffect(() => {
    document.title = `${title} · Sparewatt`;
  }, [title]);
  return (
    <div className="mx-auto max-w-[1280px] space-y-6 p-4 md:p-6">
      <header className="flex flex-wrap items-start justify-between gap-3">
        <div className="min-w-0">
          <h1>{title}</h1>
          {lead && <p className="mt-1 max-w-[72ch] text-muted">{lead}</p>}
        </div>
        {actions && <div className="flex flex-wrap gap-2">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

export function Section({ title, aside, children }: { title: string; aside?: ReactNode; children: ReactNode }) {
  return (
    <section className="space-y-3" aria-label={title}>
      <div className="flex flex-wrap items-center justify-between gap-2">
        <h2>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
}
