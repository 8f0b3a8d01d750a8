export interface CauseWords {
  name: string;
  means: string;
  help: string;
}

const WORDS: Record<string, CauseWords> = {
  link_lost: {
    name: "connection lost",
    means: "The node went away while it had a job.",
    help: "Stop it with 'sparewatt node drain', so that jobs end first; use a cable instead of Wi-Fi, and keep the machine from sleeping.",
  },
  timed_out: {
    name: "too slow, or silent",
    means: "No token came in the time that the node's own figures promise.",
    help: "Something else may use the GPU. Pause the node meanwhile, or offer fewer slots.",
  },
  backend_unreachable: {
    name: "model server away",
    means: "The node is here, and its model server did not answer.",
    help: "Start the server again; 'sparewatt node doctor' tells what is missing.",
  },
  backend_broke: {
    name: "model server broke off",
    means: "The model server ended an answer in the middle.",
    help: "See its log: most often it ran out of memory. A shorter context or fewer slots help.",
  },
  backend_timeout: {
    name: "model server hung",
    means: "The model server took a job and went silent.",
    help: "Restart it, and see its log for what it was waiting for.",
  },
  backend_error: {
    name: "model server's error",
    means: "The model server answered with an error that another node's did not give.",
    help: "See its log; update it, or load the model again.",
  },
  protocol: {
    name: "unreadable answer",
    means: "What came back was no valid answer.",
    help: "Update the agent and the model server. Does something between them change the answers?",
  },
};

/** A cause that this page does not know yet is shown by its own name. */
export function wordsOf(cause: string): CauseWords {
  return WORDS[cause] ?? { name: cause.replaceAll("_", " "), means: "The job failed.", help: "Its matches tell more." };
}

export const KNOWN_CAUSES = Object.keys(WORDS);
