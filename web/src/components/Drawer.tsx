import { X } from "lucide-react";
import type { ReactNode } from "react";
import { useModal } from "@/lib/useModal";

/** A side drawer for details. Escape or a click beside it closes it; the focus goes back to where it was. */
export function Drawer({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const dialog = useModal();
  return (
    <dialog
      ref={dialog}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
      className="fixed inset-y-0 right-0 left-auto m-0 h-dvh max-h-none w-full max-w-[760px] border-l border-line bg-ink text-text backdrop:bg-[#0009]"
    >
      <div className="flex min-h-full flex-col">
        <header className="sticky top-0 z-10 flex items-center justify-between gap-3 border-b border-line bg-ink px-4 py-3">
          <h1 className="min-w-0 truncate">{title}</h1>
          <button type="button" onClick={onClose} aria-label="Close" className="p-1 text-muted hover:text-text">
            <X size={18} />
          </button>
        </header>
        <div className="flex-1 space-y-6 p-4">{children}</div>
      </div>
    </dialog>
  );
}
