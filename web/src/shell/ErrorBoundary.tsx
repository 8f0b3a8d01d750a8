import { Component, type ReactNode } from "react";
import { Button } from "@/components/Button";
import { ErrorNotice } from "@/components/Notice";
import { Page } from "@/components/Page";

/** Shows an error in place of a page that throws. Give it the page as `key`, so that the next page starts without one. */
export class ErrorBoundary extends Component<{ children: ReactNode }, { error: unknown }> {
  override state = { error: null as unknown };

  static getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    return (
      <Page title="This page failed" lead="The fault is in the dashboard. The network goes on working.">
        <ErrorNotice error={this.state.error} />
        <Button onClick={() => location.reload()}>Reload the page</Button>
      </Page>
    );
  }
}
