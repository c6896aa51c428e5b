"""The glossary: each word of screens and pages in one sentence, in English; the catalogue has the others."""

from vitral.core.language import N_

WORDS = {
    N_("ablation"): N_("Removing a part of a trained model, such as one head, to measure how much the loss rises."),
    N_("activation"): N_(
        "A number inside the model that is computed from the input; a parameter, in contrast, is learned and stays."
    ),
    N_("arm"): N_("One variant of a study: a model and its training, repeated with several seeds."),
    N_("attention"): N_(
        "The step in which each position reads the earlier ones and takes a weighted mean of their values."
    ),
    N_("attention head"): N_("One of several attentions of a block, each with queries, keys and values of its own."),
    N_("attention weight"): N_(
        "The share of a key in what a query takes: the softmax of the scores, so that a row sums to 1."
    ),
    N_("baseline"): N_(
        "A simple method, such as a table of counts, whose loss a model must beat to have learned more than it."
    ),
    N_("batch"): N_("The windows of text that one step trains on together."),
    N_("bits per character"): N_(
        "The loss divided by ln 2 and by the mean length of a token, so that models of different tokens compare."
    ),
    N_("block"): N_(
        "A layer of a Transformer: attention and a feed-forward network, each adding to the residual stream."
    ),
    N_("byte pairs"): N_(
        "Tokens made by joining the most frequent pairs of neighbours again and again: pieces of words (BPE)."
    ),
    N_("causal mask"): N_(
        "The rule that a position sees itself and earlier ones only, without which a model would read the answer."
    ),
    N_("checkpoint"): N_("The weights saved after some step; the best one has the lowest validation loss."),
    N_("confidence interval"): N_(
        "The values that agree with the measurement; a 95% interval misses the true one in 5 of 100 studies."
    ),
    N_("context length"): N_("The most tokens that the model reads at once."),
    N_("copying"): N_(
        "Whole passages of the training text in what a model writes; Vitral counts eight or more words in a row."
    ),
    N_("cross-attention"): N_("Attention of an answer, as it is written, to what the encoder read."),
    N_("dropout"): N_(
        "Setting random activations to zero while training, so that the model does not learn the text by heart."
    ),
    N_("embedding"): N_("The vector that the model has learned for a token; the first thing that it computes with."),
    N_("encoder-decoder"): N_(
        "Two stacks of blocks: one reads a source whole, the other writes the answer and attends to it."
    ),
    N_("feed-forward network"): N_(
        "Two matrices with an activation function between them, applied to each position by itself."
    ),
    N_("fine-tuning"): N_("Training that starts from the weights of another run instead of random ones."),
    N_("gradient"): N_("For each parameter, how fast the loss changes with it; a step goes against it."),
    N_("held-out text"): N_(
        "The parts of a text that are not trained on, so that a loss on them shows what was learned, not memorized."
    ),
    N_("induction head"): N_(
        "A head that finds the last occurrence of the current token and copies what came after it."
    ),
    N_("learning rate"): N_(
        "The size of an optimizer step; too large, training diverges, too small, it does not get far."
    ),
    N_("leak"): N_("Text of the test part that also occurs in the training part: the loss then measures memory."),
    N_("logit"): N_("The score of each token as the next one, before softmax turns the scores into probabilities."),
    N_("logit lens"): N_("What the model would predict if it ended after an earlier block."),
    N_("loss"): N_("The model's mean surprise at the next token, in nats per token; lower is better."),
    N_("n-gram"): N_("A table that counts which token followed the last n − 1 ones; a 5-gram looks at four."),
    N_("nat"): N_("The unit of surprise with natural logarithms: −ln p, so 1 nat is a chance of 1 in e ≈ 2.7."),
    N_("overfitting"): N_(
        "The loss on the training text falls while that on held-out text rises: the model learns by heart."
    ),
    N_("p value"): N_("How often a difference this large would appear if the two variants were equally good."),
    N_("pane"): N_(
        "The page's picture of one token's vector: a piece of glass for each number, coloured above zero, grey below."
    ),
    N_("parameter"): N_("A number that training adjusts; the model's size is how many there are."),
    N_("pass"): N_("Reading the whole training text once (also: epoch)."),
    N_("perplexity"): N_("exp(loss): the number of equally likely tokens among which the model hesitates."),
    N_("position encoding"): N_("What tells attention where a token stands; without it the order would be invisible."),
    N_("query, key, value"): N_(
        "Three vectors of each position: what it looks for, what it is found by, and what it passes on."
    ),
    N_("residual stream"): N_(
        "The vector of each position that runs through the model; every block reads it and adds to it."
    ),
    N_("run"): N_("One training with all that it left: a folder with configuration, weights, losses and samples."),
    N_("score"): N_("The product of a query and a key, scaled: how well they match, before softmax."),
    N_("seed"): N_(
        "The number that all random choices follow from: initial weights, order of batches, dropout, sampling."
    ),
    N_("softmax"): N_("Turns scores into shares above 0 that sum to 1: exp of each, divided by the sum."),
    N_("split"): N_(
        "One of the three parts of a text: training, validation (to choose a checkpoint) and test (to report)."
    ),
    N_("step"): N_("One update of all parameters, from the gradient of one batch."),
    N_("surprise"): N_("−ln of the probability that the model gave to what came next; the loss is its mean."),
    N_("temperature"): N_(
        "Divides the logits before a token is drawn: below 1 the likely ones win more often, 0 always takes the first."
    ),
    N_("test loss"): N_("The loss on the part of the text that decides nothing: the number to report and compare."),
    N_("token"): N_("A piece of text that the model reads as one number: a character, a byte or a piece of a word."),
    N_("top-k, top-p"): N_(
        "Drawing only from the k likeliest tokens, or from the likeliest ones that together have probability p."
    ),
    N_("undertrained"): N_(
        "A model that had too few steps for its size; its loss still falls fast, and says little about its design."
    ),
    N_("validation loss"): N_(
        "The loss on the held-out part that chooses the best checkpoint; it differs from test as the texts differ."
    ),
    N_("vocabulary"): N_("All tokens that a model knows; a character of none of them must be replaced."),
}
"""By word, in alphabetical order."""
