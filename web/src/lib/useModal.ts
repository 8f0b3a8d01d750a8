import { useLayoutEffect, useRef, type RefObject } from "react";

/** Opens a `<dialog>` as a modal, and closes it before it is removed: only then the browser gives the focus back. */
export function useModal(): RefObject<HTMLDialogElement | null> {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return dialog;
}
