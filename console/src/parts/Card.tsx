import type { ReactNode } from "react";

export function Card({ title, aside, children }: { title?: string; aside?: ReactNode; children: ReactNode }) {
  return (
    <section className="card" {...(title ? { "aria-label": title } : {})}>
      {title ? (
        <header>
          <h2 className="grow">{title}</h2>
          {aside}
        </header>
      ) : null}
      {children}
    </section>
  );
}

export interface Crumb {
  readonly key: string;
  readonly link: ReactNode;
}

/** A comment that is still asked for, or isn't there: what is below it stays where it is. */
export const LINE = "\u00a0";

export function Head({
  crumbs = [],
  title,
  comment,
  children,
}: {
  crumbs?: readonly Crumb[];
  title: ReactNode;
  comment?: string | undefined;
  children?: ReactNode;
}) {
  return (
    <header className="head">
      <div className="titles">
        {crumbs.length > 0 ? (
          <nav aria-label="Where this is">
            <ol className="crumbs">
              {crumbs.map(({ key, link }) => (
                <li key={key}>{link}</li>
              ))}
            </ol>
          </nav>
        ) : null}
        <h1>{title}</h1>
        {comment ? <p className="comment">{comment}</p> : null}
      </div>
      {children ? <div className="acts">{children}</div> : null}
    </header>
  );
}

export function Figure({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
