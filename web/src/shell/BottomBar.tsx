import { Menu, UserRound } from "lucide-react";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { useMe } from "@/api/queries";
import { isCurrent, pagesFor } from "./pages";

/** The navigation of a phone: the main pages, and a menu with the others. */
export function BottomBar() {
  const [current] = useLocation();
  const [isOpen, setOpen] = useState(false);
  const me = useMe();
  const pages = pagesFor(me.data?.role);
  return (
    <nav aria-label="Pages" className="fixed inset-x-0 bottom-0 z-20 border-t border-line bg-surface md:hidden">
      {isOpen && (
        <ul className="grid grid-cols-2 gap-1 border-b border-line p-2">
          {pages.filter((page) => !page.isMain).map(({ path, name, icon: Icon }) => (
            <li key={path}>
              <Link href={path} onClick={() => setOpen(false)} className="flex min-h-11 items-center gap-2 px-2">
                <Icon size={16} aria-hidden />
                {name}
              </Link>
            </li>
          ))}
          {me.data && (
            <li>
              <Link href="/account" onClick={() => setOpen(false)} className="flex min-h-11 items-center gap-2 px-2">
                <UserRound size={16} aria-hidden />
                Account
              </Link>
            </li>
          )}
        </ul>
      )}
      <ul className="grid grid-cols-5">
        {pages.filter((page) => page.isMain).map(({ path, name, shortName, icon: Icon }) => (
          <li key={path}>
            <Link
              href={path}
              onClick={() => setOpen(false)}
              aria-current={isCurrent(path, current) ? "page" : undefined}
              className={`small flex min-h-14 flex-col items-center justify-center gap-1 ${isCurrent(path, current) ? "text-text" : "text-muted"}`}
            >
              <Icon size={18} aria-hidden />
              {shortName ?? name}
            </Link>
          </li>
        ))}
        <li>
          <button
            type="button"
            aria-expanded={isOpen}
            onClick={() => setOpen(!isOpen)}
            className="small flex min-h-14 w-full flex-col items-center justify-center gap-1 text-muted"
          >
            <Menu size={18} aria-hidden />
            More
          </button>
        </li>
      </ul>
    </nav>
  );
}
