import { Component, type ReactNode } from "react";
import { Button } from "@/parts/Button";
import { ErrorNote } from "@/parts/Note";
import { Page } from "@/parts/Page";

/** A page that breaks says so and leaves the rest standing. Another address is another page: `key` it by that. */
export class Fallback extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: null as unknown };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    return (
      <Page title="This page broke" lead="That is a mistake in the dashboard; the network is not touched by it.">
        <ErrorNote error={this.state.error} />
        <Button onClick={() => location.reload()}>Load it again</Button>
      </Page>
    );
  }
}
