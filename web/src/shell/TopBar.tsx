import { useQueryClient } from "@tanstack/react-query";
import { Moon, Search, Sun } from "lucide-react";
import { Link, useLocation } from "wouter";
import { api, forgetLogin } from "@/api/client";
import { useCredits, useMe } from "@/api/queries";
import { useFeed } from "@/feed/useFeed";
import { usd } from "@/lib/format";
import { setTheme, useTheme } from "@/lib/theme";
import { Button } from "@/components/Button";

/** Search, state of the live feed, theme and account. */
export function TopBar({ onSearch }: { onSearch: () => void }) {
  const theme = useTheme();
  const { connected } = useFeed();
  const otherTheme = theme === "dark" ? "light" : "dark";
  return (
    <header className="sticky top-0 z-10 flex min-h-14 items-center gap-2 border-b border-line bg-ink px-4 md:px-6">
      <button
        type="button"
        onClick={onSearch}
        className="flex min-h-9 min-w-0 flex-1 items-center gap-2 rounded-md border border-line bg-surface px-3 text-muted hover:border-muted sm:max-w-sm"
      >
        <Search size={16} aria-hidden />
        <span className="truncate">Find a node, model, key, order</span>
        <kbd className="num small ml-auto hidden sm:inline">Ctrl K</kbd>
      </button>
      <span role="status" className="small ml-auto flex items-center gap-1.5 text-muted">
        <span aria-hidden className={connected ? "text-online" : "text-offline"}>
          {connected ? "●" : "✕"}
        </span>
        <span className="max-sm:sr-only">{connected ? "live" : "reconnecting"}</span>
      </span>
      <Button look="quiet" aria-label={`Switch to the ${otherTheme} theme`} onClick={() => setTheme(otherTheme)}>
        {theme === "dark" ? <Sun size={16} /> : <Moon size={16} />}
      </Button>
      <Session />
    </header>
  );
}

function Session() {
  const me = useMe();
  const credits = useCredits(Boolean(me.data));
  const queries = useQueryClient();
  const [, navigate] = useLocation();
  if (me.isPending) return null;
  if (!me.data)
    return (
      <>
        <Link href="/login" className="px-2 whitespace-nowrap hover:underline">
          Log in
        </Link>
        <Link href="/signup" className="flex min-h-9 items-center rounded-md bg-volt px-3 font-semibold whitespace-nowrap text-on-volt">
          Sign up
        </Link>
      </>
    );
  const logOut = async () => {
    await api("/v1/logout", { body: {} });
    forgetLogin();
    await queries.resetQueries();
    navigate("/");
  };
  return (
    <>
      {credits.data && (
        <Link href="/usage" className="num small whitespace-nowrap text-muted hover:text-text" title="Credits left">
          {usd(credits.data.data.balance_usd)}
        </Link>
      )}
      <Link href="/account" className="small max-w-40 truncate text-muted hover:text-text max-sm:hidden" title={me.data.account.email ?? me.data.account.id}>
        {me.data.account.email ?? me.data.account.name}
      </Link>
      <Button look="quiet" onClick={logOut}>
        Log out
      </Button>
    </>
  );
}
