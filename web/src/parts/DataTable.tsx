import { Download } from "lucide-react";
import { useMemo, useState, type ReactNode } from "react";
import { useDeepLink } from "@/lib/address";
import { asCsv, download, type Row } from "@/lib/download";

export interface Column<T> {
  name: string;
  cell: (row: T) => ReactNode;
  /** What it is sorted by; a column without it is not. */
  by?: (row: T) => number | string;
  isNumber?: boolean;
}

interface Props<T> {
  id: string;
  rows: T[];
  columns: Column<T>[];
  rowKey: (row: T) => string;
  /** As it is downloaded. */
  plain: (row: T) => Row;
  empty: ReactNode;
  onOpen?: (row: T) => void;
  max?: number;
}

/** A table on a wide screen, cards on a phone; sorted by its heads; as CSV and JSON. Its id is its deep link. */
export function DataTable<T>({ id, rows, columns, rowKey, plain, empty, onOpen, max = 200 }: Props<T>) {
  const [sort, setSort] = useState<{ column: number; up: boolean } | null>(null);
  const sorted = useMemo(() => sortedBy(rows, columns, sort), [rows, columns, sort]);
  useDeepLink(rows.length > 0);
  if (!rows.length) return <div id={id}>{empty}</div>;
  const turn = (column: number) => setSort((now) => ({ column, up: now?.column === column ? !now.up : false }));
  return (
    <div id={id} className="card scroll-mt-16">
      <table className="w-full max-sm:block">
        <thead className="small text-muted max-sm:hidden">
          <tr className="border-b border-line">
            {columns.map((column, at) => (
              <th
                key={column.name}
                scope="col"
                aria-sort={sort?.column === at ? (sort.up ? "ascending" : "descending") : undefined}
                className={`px-3 py-2 font-normal ${column.isNumber ? "text-right" : "text-left"}`}
              >
                {column.by ? (
                  <button type="button" onClick={() => turn(at)} className="hover:text-text">
                    {column.name}
                    <span aria-hidden>{sort?.column === at ? (sort.up ? " ↑" : " ↓") : ""}</span>
                  </button>
                ) : (
                  column.name
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody className="max-sm:block">
          {sorted.slice(0, max).map((row) => (
            <tr
              key={rowKey(row)}
              onClick={onOpen && ((event) => !(event.target as Element).closest("a, button") && onOpen(row))}
              className={`border-b border-line last:border-0 max-sm:block max-sm:p-3 ${onOpen ? "cursor-pointer hover:bg-line/40" : ""}`}
            >
              {columns.map((column) => (
                <td
                  key={column.name}
                  className={`px-3 py-2 align-top max-sm:flex max-sm:justify-between max-sm:gap-4 max-sm:px-0 max-sm:py-0.5 ${column.isNumber ? "text-right whitespace-nowrap" : ""}`}
                >
                  <span className="small shrink-0 text-muted sm:hidden">{column.name}</span>
                  <span className={column.isNumber ? "num min-w-0" : "min-w-0 max-sm:text-right"}>{column.cell(row)}</span>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <footer className="small flex items-center justify-between gap-3 border-t border-line px-3 py-1.5 text-muted">
        <a href={`#${id}`} className="hover:text-text">
          {rows.length > max ? `${max} of ${rows.length} rows` : `${rows.length} ${rows.length === 1 ? "row" : "rows"}`}
        </a>
        <span className="flex items-center gap-3">
          <Download size={14} aria-hidden />
          <button type="button" className="hover:text-text" onClick={() => download(`${id}.csv`, "text/csv", asCsv(sorted.map(plain)))}>
            CSV
          </button>
          <button
            type="button"
            className="hover:text-text"
            onClick={() => download(`${id}.json`, "application/json", JSON.stringify(sorted.map(plain), null, 2))}
          >
            JSON
          </button>
        </span>
      </footer>
    </div>
  );
}

function sortedBy<T>(rows: T[], columns: Column<T>[], sort: { column: number; up: boolean } | null): T[] {
  const by = sort && columns[sort.column]?.by;
  if (!sort || !by) return rows;
  const sign = sort.up ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [x, y] = [by(a), by(b)];
    return x < y ? -sign : x > y ? sign : 0;
  });
}
