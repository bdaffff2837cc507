/** The turns of a chat: a question with its answer. */
import { saysSomething, textOfSteps } from "./steps.js";

const AROUND = 24; // characters a message, for the tokens that templates write around it

/** @type {(keyof import("./database.js").Draft)[]} */
const OF_AN_ANSWER = [
  "finish",
  "error",
  "stats",
  "cut",
  "sources",
  "reasoning",
  "thoughtMs",
  "words",
  "trace",
  "toolCalls",
  "steps",
  "budget",
];

/**
 * The messages for the model, without questions that were never answered, so that roles alternate.
 * @template {import("./database.js").Draft} M @param {M[]} messages
 */
export function answered(messages) {
  return messages.filter((message, index) => {
    const next = messages[index + 1];
    return saysSomething(message) && !(message.role === "user" && next && !saysSomething(next));
  });
}

/** The index of the first message that is sent if so many turns are not. @param {{ role: string }[]} turns @param {number} dropped */
export function firstSent(turns, dropped) {
  if (!dropped) return 0;
  const questions = turns.flatMap(({ role }, index) => (role === "user" ? [index] : []));
  return questions[Math.min(dropped, questions.length - 1)] ?? 0;
}

/**
 * How many turns are older than the newest messages that have so many characters together.
 * @param {import("./database.js").Draft[]} turns @param {number} characters
 */
export function olderTurns(turns, characters) {
  let older = turns.filter(({ role }) => role === "user").length;
  for (let i = turns.length - 1; i >= 0 && characters > 0; i--) {
    const { role, content, steps } = turns[i];
    characters -= content.length + textOfSteps(steps).length + AROUND;
    if (role === "user") older--;
  }
  return older;
}

/** Whether a message is an answer that has not ended. @param {import("./database.js").Message} message */
export const isOpen = ({ role, finish }) => role === "assistant" && !finish;

/** @template {import("./database.js").Draft} M @param {M[]} messages */
export function lastAnswer(messages) {
  return messages.findLast(({ role, content }) => role === "assistant" && content);
}

/** An answer that failed before its first word, to be made again. @param {import("./database.js").Message} message */
export function emptied(message) {
  for (const name of OF_AN_ANSWER) delete message[name];
  return message;
}
