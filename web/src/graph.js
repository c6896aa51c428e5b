// A graph that Vitral exported (`vitral.core.graphs`), and its interpreter.
import { OPERATIONS, isTensor } from "./operations";
import { tensor } from "./tensors";
const SPELLED = { inf: Infinity, "-inf": -Infinity, nan: NaN };
/** An argument with the values of this run in it. */
export function argument(given, values) {
    if (given === null || typeof given !== "object")
        return given;
    if (Array.isArray(given))
        return given.map((each) => argument(each, values));
    return "at" in given ? values[given.at] : SPELLED[given.number];
}
/** All values of a graph: inputs, constants, nodes. */
export function evaluate(graph, inputs, edits = {}) {
    const values = graph.inputs.map((name) => {
        if (!inputs[name])
            throw new Error(`the graph needs ${name}`);
        return inputs[name];
    });
    for (const { shape, data } of graph.constants)
        values.push(tensor(shape, data.map((each) => (typeof each === "string" ? SPELLED[each] : +each))));
    const named = new Map(Object.entries(graph.outputs).map(([name, place]) => [place, name]));
    for (const [operation, given] of graph.nodes) {
        if (!(operation in OPERATIONS))
            throw new Error(`the graph has an unknown operation: ${operation}`);
        const made = OPERATIONS[operation](...given.map((each) => argument(each, values)));
        const edit = edits[named.get(values.length) ?? ""];
        values.push(edit && isTensor(made) ? edit(made) : made);
    }
    return values;
}
/** The named values of a graph. */
export function run(graph, inputs, edits = {}) {
    const values = evaluate(graph, inputs, edits);
    return Object.fromEntries(Object.entries(graph.outputs).map(([name, place]) => [name, values[place]]));
}
