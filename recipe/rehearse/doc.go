// Package rehearse is the recipe of posttrain rehearse: before a long run it finds what would make the run useless.
//
// Rows go through the run's own tokenizer, chat template and limits. First their tokens are examined: do the answers
// end with a token that the model stops at, is every message among the tokens, does the loss see the answers? Then a
// tiny model with the same vocabulary learns eight rows by heart, is saved, loaded and served, and must give each
// answer back word by word and stop.
package rehearse
