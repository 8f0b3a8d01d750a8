import type { ReactNode } from "react";
import { useModal } from "@/lib/useModal";

/** A question in the middle of the page. Escape or a click beside it is a no. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
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
      className="m-auto w-[calc(100%-2rem)] max-w-[480px] rounded-md border border-line bg-ink text-text backdrop:bg-[#0009]"
    >
      <div className="space-y-4 p-4">
        <h2 className="text-[20px] leading-tight">{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
