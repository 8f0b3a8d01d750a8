import { useSyncExternalStore } from "react";
import { feed, type FeedView } from "./feed";

export function useFeed(): FeedView {
  return useSyncExternalStore(feed.subscribe, () => feed.view);
}
