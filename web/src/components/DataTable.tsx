import { Download } from "lucide-react";
import { useMemo, useState, type ReactNode } from "react";
import { asCsv, download } from "@/lib/download";
import { plural } from "@/lib/format";
import { useScrollToFragment } from "@/lib/urlState";

export interface Column<T> {
  name: string;
  cell: (row: T) => ReactNode;
  /** The sort key. A column without one cannot be sorted. */
  sortBy?: (row: T) => number | string;
  isNumber?: boolean;
}

interface Sort {
  column: number;
  isAscending: boolean;
}

const ROWS_MAX = 200;

interface Props<T> {
  /** Also the fragment of the table's address. */
  id: string;
  rows: T[];
  columns: Column<T>[];
  rowKey: (row: T) => string;
  /** A row of the download. The row itself by default. */
  toDownload?: (row: T) => object;
  empty: ReactNode;
  onOpen?: (row: T) => void;
}

/** A table that can be sorted, linked to and downloaded. On a phone each row is a card. */
export function DataTable<T extends object>({ id, rows, columns, rowKey, toDownload = (row) => row, empty, onOpen }: Props<T>) {
  const [sort, setSort] = useState<Sort | null>(null);
  const sorted = useMemo(() => sortRows(rows, columns, sort), [rows, columns, sort]);
  useScrollToFragment(rows.length > 0);
  if (!rows.length) return <div id={id}>{empty}</div>;
  const toggleSort = (column: number) => setSort((now) => ({ column, isAscending: now?.column === column && !now.isAscending }));
  const save = (type: "csv" | "json") => {
    const saved = sorted.map(toDownload);
    if (type === "csv") download(`${id}.csv`, "text/csv", asCsv(saved));
    else download(`${id}.json`, "application/json", JSON.stringify(saved, null, 2));
  };
  return (
    <div id={id} className="card scroll-mt-16">
      <table className="w-full max-sm:block">
        <thead className="small text-muted max-sm:hidden">
          <tr className="border-b border-line">
            {columns.map((column, at) => (
              <th
                key={column.name}
                scope="col"
                aria-sort={sort?.column === at ? (sort.isAscending ? "ascending" : "descending") : undefined}
                className={`px-3 py-2 font-normal ${column.isNumber ? "text-right" : "text-left"}`}
              >
                {column.sortBy ? (
                  <button type="button" onClick={() => toggleSort(at)} className="hover:text-text">
                    {column.name}
                    <span aria-hidden>{sort?.column === at ? (sort.isAscending ? " ↑" : " ↓") : ""}</span>
                  </button>
                ) : (
                  column.name
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody className="max-sm:block">
          {sorted.slice(0, ROWS_MAX).map((row) => (
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
          {rows.length > ROWS_MAX ? `${ROWS_MAX} of ` : ""}
          {plural(rows.length, "row")}
        </a>
        <span className="flex items-center gap-3">
          <Download size={14} aria-hidden />
          <button type="button" className="hover:text-text" onClick={() => save("csv")}>
            CSV
          </button>
          <button type="button" className="hover:text-text" onClick={() => save("json")}>
            JSON
          </button>
        </span>
      </footer>
    </div>
  );
}

function sortRows<T>(rows: T[], columns: Column<T>[], sort: Sort | null): T[] {
  const sortBy = sort && columns[sort.column]?.sortBy;
  if (!sort || !sortBy) return rows;
  const sign = sort.isAscending ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [x, y] = [sortBy(a), sortBy(b)];
    return x < y ? -sign : x > y ? sign : 0;
  });
}
