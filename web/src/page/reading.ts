// Components that read signals: one is drawn again when a signal that it has read changes, and not because its parent is,
// unless it has other props or keeps something itself. The short names are those that preact is shipped with.

import { Component, Fragment, options, VNode } from "preact";
import { Reader } from "./signals";

interface Reading extends Component {
  reader?: Reader;
  /** Whether something that it has read has changed, and whether it keeps something itself. */
  isStale?: boolean;
  keeps?: boolean;
}
interface Node extends VNode {
  __c?: Reading | null;
}
type Hook = (...given: never[]) => void;

/** The first kinds of hooks keep something: states and effects. */
const KEEPING = 3;

let end: (() => unknown) | undefined;

function stop(): void {
  end?.();
  end = undefined;
}

function before(name: string, work: Hook): void {
  const hooks = options as Record<string, Hook | undefined>;
  const old = hooks[name];
  hooks[name] = (...given) => {
    work(...given);
    old?.(...given);
  };
}

for (const each of ["__b", "__e", "diffed"]) before(each, stop);
before("__r", ({ type, __c: component }: Node) => {
  if (type === Fragment) return;
  stop();
  if (!component) return;
  component.isStale = false;
  component.reader ??= new Reader(() => {
    component.isStale = true;
    component.setState({});
  });
  end = component.reader.start();
});
before("__h", (component: Reading, _: number, kind: number) => {
  if (kind < KEEPING) component.keeps = true;
});
before("unmount", ({ __c: component }: Node) => component?.reader?.leave());

Component.prototype.shouldComponentUpdate = function (this: Reading, props: Record<string, unknown>) {
  const own = this.props as Record<string, unknown>;
  const isOther = (key: string) => props[key] !== own[key];
  return !this.reader?.sources.size || !!this.isStale || !!this.keeps || [props, own].some((all) => Object.keys(all).some(isOther));
};
