import { X } from "lucide-react";
import { useLayoutEffect, useRef, type ReactNode } from "react";

/** Details at the side, with an address of their own. Escape closes; what had the focus gets it back. */
export function Drawer({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = dialog.current; // closed while it is still there, so that the focus goes back
    element?.showModal();
    return () => element?.close();
  }, []);
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
