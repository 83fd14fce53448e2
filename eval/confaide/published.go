package confaide

// PublishedSource says where the published figures are from.
const PublishedSource = "the authors' results, github.com/mireshghallah/confAIde, eval_results/with_privacy_prompts: " +
	"10 answers to each question, prompts with the privacy instruction; correlations are of the ratings there"

// PublishedModels are the columns of Published, by the names that the results have.
var PublishedModels = [6]string{"gpt-4-0613", "gpt-3.5-turbo-0613", "text-davinci-003", "llama-2-70b-chat",
	"llama-2-70b", "flan-ul2"}

type six = [len(PublishedModels)]float64

// Published are figures by model.
type Published struct {
	Tier  string `json:"tier"`
	Kind  string `json:"question"`
	Fault string `json:"fault,omitempty"` // "": the correlation with people's ratings
	Value six    `json:"values"`          // the correlation, or the mean share of the fault
	Worst six    `json:"worst_case"`      // of a fault
}

// PublishedRows have a row for each correlation and fault.
var PublishedRows = []Published{
	{"1", Rating, "", six{0.621, 0.817, 0.353, 0.506, 0.424, 0.518}, six{}},
	{"2a", Rating, "", six{0.748, 0.707, 0.706, 0.337, 0.245, 0.642}, six{}},
	{"2b", Rating, "", six{0.693, 0.628, 0.585, 0.578, -0.042, 0.494}, six{}},
	{"3", FreeResponse, Leak, six{0.092, 0.524, 0.344, 0.821, 0.516, 0.654},
		six{0.219, 0.926, 0.793, 0.996, 0.993, 0.989}},
	{"3", InfoAccessibility, Either, six{0.024, 0.123, 0.402, 0.855, 0.789, 0.16},
		six{0.044, 0.404, 0.763, 1, 1, 0.596}},
	{"3", InfoAccessibility, Omission, six{0.013, 0.014, 0.007, 0.201, 0.421, 0.124},
		six{0.015, 0.019, 0.015, 0.919, 0.996, 0.511}},
	{"3", InfoAccessibility, Outsider, six{0.014, 0.113, 0.399, 0.68, 0.437, 0.098},
		six{0.033, 0.393, 0.763, 1, 0.989, 0.411}},
	{"3", PrivacySharing, Either, six{0.018, 0.095, 0.309, 0.833, 0.757, 0.125},
		six{0.026, 0.322, 0.704, 1, 1, 0.556}},
	{"3", PrivacySharing, Omission, six{0.011, 0.015, 0.01, 0.254, 0.436, 0.07},
		six{0.011, 0.022, 0.011, 0.93, 1, 0.396}},
	{"3", PrivacySharing, Outsider, six{0.011, 0.084, 0.303, 0.603, 0.394, 0.082},
		six{0.019, 0.307, 0.7, 1, 0.985, 0.378}},
	{"3", Control, Wrong, six{0.041, 0.009, 0, 0.392, 0.779, 0.361}, six{0.063, 0.037, 0, 0.985, 1, 0.911}},
	{"4", MeetingSummary, Leak, six{0.385, 0.575, 0.09, 0.35, 0.21, 0.385}, six{0.8, 0.85, 0.55, 0.85, 0.75, 0.85}},
	{"4", MeetingSummary, Omission, six{0.095, 0.27, 0.635, 0.725, 0.77, 0.45}, six{0.55, 0.8, 1, 1, 1, 1}},
	{"4", MeetingSummary, Either, six{0.425, 0.735, 0.68, 0.92, 0.875, 0.685}, six{0.9, 0.9, 1, 1, 1, 1}},
	{"4", ActionItem, Leak, six{0.295, 0.385, 0.275, 0.43, 0.215, 0.145}, six{0.8, 0.85, 0.75, 0.9, 0.75, 0.65}},
	{"4", ActionItem, Omission, six{0.755, 0.895, 0.835, 0.86, 0.925, 0.765}, six{0.95, 1, 1, 1, 1, 1}},
	{"4", ActionItem, Either, six{0.895, 0.96, 0.905, 0.95, 0.955, 0.845}, six{1, 1, 1, 1, 1, 1}},
}
