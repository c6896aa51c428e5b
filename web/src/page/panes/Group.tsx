// Buttons that belong together: one stop of Tab for all of them, arrows from one to the next.

import { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface Props {
  as?: "div" | "p" | "ol" | "ul";
  class?: string;
  label: string;
  /** The number that the group is about, for programs. */
  value?: number;
  children: ComponentChildren;
}

const WAYS: Record<string, number> = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };

/** A list keeps its own role, so that it is still read as one. */
export function Group({ as: Tag = "div", class: name, label, value, children }: Props) {
  const node = useRef<HTMLElement>(null);
  const buttons = () => [...node.current!.querySelectorAll("button")];
  const stopAt = (here: Element | null | undefined) => buttons().forEach((each) => (each.tabIndex = each === here ? 0 : -1));
  useLayoutEffect(() => {
    const all = buttons();
    stopAt(all.find((each) => each === document.activeElement) ?? all.find((each) => each.ariaPressed === "true") ?? all.find((each) => each.tabIndex === 0) ?? all[0]);
  });
  const onKeyDown = (event: KeyboardEvent) => {
    const [all, way] = [buttons(), WAYS[event.key]];
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    if (!way || at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    stopAt(all[Math.min(all.length - 1, Math.max(0, at + way))]);
    all.find((each) => each.tabIndex === 0)?.focus();
  };
  const role = Tag === "ol" || Tag === "ul" ? undefined : "group";
  const Any = Tag as "div";
  return (
    <Any ref={node as { current: HTMLDivElement | null }} class={name} aria-label={label} data-value={value} onKeyDown={onKeyDown} onFocusIn={(event: FocusEvent) => stopAt((event.target as Element).closest("button"))} role={role}>
      {children}
    </Any>
  );
}
