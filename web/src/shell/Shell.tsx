import { useState, type ReactNode } from "react";
import { useLocation } from "wouter";
import { BottomBar } from "./BottomBar";
import { Fallback } from "./Fallback";
import { Rail } from "./Rail";
import { Search } from "./Search";
import { TopBar } from "./TopBar";
import { useSearchKey } from "./useSearchKey";

/** What stands around every page. */
export function Shell({ children }: { children: ReactNode }) {
  const [isSearching, setSearching] = useState(false);
  const [place] = useLocation();
  const page = place.split("/")[1];
  useSearchKey(() => setSearching(true));
  return (
    <div className="flex min-h-full flex-col md:flex-row">
      <a href="#main" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-volt focus:p-2 focus:text-on-volt">
        Skip to the page
      </a>
      <Rail />
      <div className="flex min-w-0 flex-1 flex-col">
        <TopBar onSearch={() => setSearching(true)} />
        <main id="main" tabIndex={-1} className="min-w-0 flex-1 pb-20 outline-none md:pb-6">
          <Fallback key={page}>{children}</Fallback>
        </main>
      </div>
      <BottomBar />
      {isSearching && <Search onClose={() => setSearching(false)} />}
    </div>
  );
}
