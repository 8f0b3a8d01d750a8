import { useSyncExternalStore } from "react";
import { feed, type FeedState } from "./feed";

export function useFeed(): FeedState {
  return useSyncExternalStore(feed.subscribe, () => feed.state);
}
