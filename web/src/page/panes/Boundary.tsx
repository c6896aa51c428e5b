// What cannot be drawn is not drawn: where a pane fails, nothing of it stays, and the page says so.

import { Component, ComponentChildren } from "preact";
import { t } from "../words";

interface Props {
  /** What is drawn; of another value the panes are tried again. */
  of: unknown;
  children: ComponentChildren;
}
interface State { failed?: unknown; of?: unknown }

export class Boundary extends Component<Props, State> {
  state: State = {};

  static getDerivedStateFromProps({ of }: Props, state: State): State | null {
    return of === state.of ? null : { of, failed: undefined };
  }

  static getDerivedStateFromError(failed: unknown): State {
    return { failed };
  }

  render() {
    const { failed } = this.state;
    return failed === undefined ? this.props.children : <p role="alert">{t("This could not be drawn, so nothing is shown: {reason}", { reason: String(failed) })}</p>;
  }
}
