import { useEffect, useState, type ReactNode } from "react";
import { useLocation } from "wouter";
import { BottomBar } from "./BottomBar";
import { ErrorBoundary } from "./ErrorBoundary";
import { Rail } from "./Rail";
import { Search } from "./Search";
import { TopBar } from "./TopBar";

/** The frame around every page: navigation, top bar and search. */
export function Shell({ children }: { children: ReactNode }) {
  const [isSearching, setSearching] = useState(false);
  const [path] = useLocation();
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setSearching(true);
      }
    };
    window.addEventListener("keydown", onKeyDown);
    return () => window.removeEventListener("keydown", onKeyDown);
  }, []);
  return (
    <div className="flex min-h-full flex-col md:flex-row">
      <a href="#main" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-volt focus:p-2 focus:text-on-volt">
        Skip to the page
      </a>
      <Rail />
      <div className="flex min-w-0 flex-1 flex-col">
        <TopBar onSearch={() => setSearching(true)} />
        <main id="main" tabIndex={-1} className="min-w-0 flex-1 pb-20 outline-none md:pb-6">
          <ErrorBoundary key={path.split("/")[1]}>{children}</ErrorBoundary>
        </main>
      </div>
      <BottomBar />
      {isSearching && <Search onClose={() => setSearching(false)} />}
    </div>
  );
}
