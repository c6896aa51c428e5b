// The rules of hooks. Signals of modules are read where a component is drawn, so as dependencies they are no superfluous ones.
import parser from "@typescript-eslint/parser";
import hooks from "eslint-plugin-react-hooks";

const signals = {
  preprocess: (text) => [text],
  postprocess: ([messages]) => messages.filter(({ message }) => !message.includes("unnecessary dependenc")),
};

export default [
  {
    files: ["src/page/**/*.ts", "src/page/**/*.tsx"],
    languageOptions: { parser },
    plugins: { "react-hooks": hooks },
    processor: signals,
    rules: { "react-hooks/rules-of-hooks": "error", "react-hooks/exhaustive-deps": ["error", { additionalHooks: "^useScene$" }] },
  },
];
