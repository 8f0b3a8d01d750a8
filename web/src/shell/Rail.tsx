import { Link, useLocation } from "wouter";
import { useMe, useVersion } from "@/api/queries";
import { isCurrent, pagesFor } from "./pages";

/** The navigation of a wide screen, at its left. */
export function Rail() {
  const [current] = useLocation();
  const version = useVersion();
  const pages = pagesFor(useMe().data?.role);
  const groups = [...new Set(pages.map((page) => page.group))];
  return (
    <nav aria-label="Pages" className="sticky top-0 hidden h-dvh w-52 shrink-0 flex-col border-r border-line bg-surface p-3 md:flex">
      <Link href="/" className="mb-4 flex items-center gap-2 px-2 py-1 text-[16px] font-semibold">
        <svg viewBox="0 0 32 32" width="20" height="20" aria-hidden>
          <path d="M18 3 6 18h8l-1 11 13-16h-9z" className="fill-volt" />
        </svg>
        Sparewatt
      </Link>
      {groups.map((group) => (
        <div key={group} className="mb-4">
          <p className="small px-2 pb-1 text-muted">{group}</p>
          <ul>
            {pages.filter((page) => page.group === group).map(({ path, name, icon: Icon }) => (
              <li key={path}>
                <Link
                  href={path}
                  aria-current={isCurrent(path, current) ? "page" : undefined}
                  className={`flex min-h-9 items-center gap-2 rounded-md px-2 ${isCurrent(path, current) ? "bg-line font-semibold" : "text-muted hover:text-text"}`}
                >
                  <Icon size={16} aria-hidden />
                  {name}
                </Link>
              </li>
            ))}
          </ul>
        </div>
      ))}
      <p className="small num mt-auto px-2 text-muted">{version.data && `v${version.data.version}`}</p>
    </nav>
  );
}
