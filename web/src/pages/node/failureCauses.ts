// The causes of failed jobs, for the owner of a node.
import type { FailureCauseName } from "../../api/schema.ts";

export interface CauseText {
  name: string;
  meaning: string;
  help: string;
}

const CAUSES: Record<FailureCauseName, CauseText> = {
  link_lost: {
    name: "connection lost",
    meaning: "The node went away while it had a job.",
    help: "Stop it with 'sparewatt node drain', so that its jobs end first. Use a cable instead of Wi-Fi, and keep the machine from sleeping.",
  },
  timed_out: {
    name: "too slow, or silent",
    meaning: "No token came within the time that the node's own figures promise.",
    help: "Another program may be using the GPU. Pause the node meanwhile, or offer fewer slots.",
  },
  backend_unreachable: {
    name: "model server unreachable",
    meaning: "The node was connected, but its model server did not answer.",
    help: "Start the model server again; 'sparewatt node doctor' shows what is missing.",
  },
  backend_broke: {
    name: "model server broke off",
    meaning: "The model server ended an answer in the middle.",
    help: "Look into its log: most often it ran out of memory. A shorter context or fewer slots help.",
  },
  backend_timeout: {
    name: "model server hung",
    meaning: "The model server took a job and then sent nothing.",
    help: "Restart it, and look into its log for what it was waiting for.",
  },
  backend_error: {
    name: "model server's error",
    meaning: "The model server answered with an error, and another node's model server did not.",
    help: "Look into its log; update it, or load the model again.",
  },
  protocol: {
    name: "unreadable answer",
    meaning: "The answer was not valid.",
    help: "Update the agent and the model server. Check that no proxy between them changes the answers.",
  },
  overclaimed: {
    name: "too many tokens claimed",
    meaning: "The model server counted far more tokens than other owners' servers count for like text; they were not paid.",
    help: "Check that the server has the model that it names, and shows all that it writes: hidden reasoning is not paid.",
  },
};

/** A gateway that is newer than this page may name a cause that is missing here. */
export function describeCause(cause: string): CauseText {
  const texts: Partial<Record<string, CauseText>> = CAUSES;
  return texts[cause] ?? { name: cause.replaceAll("_", " "), meaning: "The job failed.", help: "The explanations of its matches have the details." };
}

export const KNOWN_CAUSES = Object.keys(CAUSES);
