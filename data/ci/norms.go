package ci

import "strings"

// kind is a sort of attribute: its neutral key, the generator of its values, and its phrases ({} is the value, {friend}
// another person's name). The phrase shows the kind, so that a model can learn what fits.
type kind struct {
	key     string
	value   string
	phrases []string
}

// kinds by the name that tasks use.
var kinds = map[string]kind{
	"name":      {"Name", "person", []string{"my name is {}", "I am {}", "this is {}"}},
	"arrival":   {"ArrivalDate", "date", []string{"arriving on {}", "check-in on {}"}},
	"date":      {"Date", "date", []string{"the day is {}", "best on {}"}},
	"time":      {"Time", "time", []string{"the time is {}", "best at {}"}},
	"phone":     {"Phone", "phone", []string{"my phone is {}", "call me on {}"}},
	"address":   {"Address", "address", []string{"I live at {}", "my home is {}"}},
	"medicine":  {"Medicine", "drug", []string{"I take {}", "I was prescribed {}"}},
	"illness":   {"Health", "illness", []string{"I have {}", "I suffer from {}"}},
	"salary":    {"Income", "wage", []string{"I earn {} a month", "my salary is {}"}},
	"account":   {"Account", "code", []string{"my account is {}", "I pay from account {}"}},
	"pin":       {"CardNumber", "pin", []string{"my PIN is {}", "the card PIN is {}"}},
	"passport":  {"Document", "serial", []string{"my passport is {}", "passport number {}"}},
	"password":  {"Login", "secret", []string{"my password is {}", "I log in with {}"}},
	"order":     {"OrderNumber", "code", []string{"the order is {}", "order number {}"}},
	"case":      {"FileNumber", "code", []string{"the file is {}", "file number {}"}},
	"plate":     {"CarPlate", "code", []string{"my car is {}", "the plate is {}"}},
	"product":   {"Product", "thing", []string{"the product is a {}", "it is about a {}"}},
	"gift":      {"Gift", "thing", []string{"the gift is a {}", "the surprise is a {}"}},
	"show":      {"Show", "show", []string{"the show is {}", "to see {}"}},
	"amount":    {"Amount", "amount", []string{"the amount is {}", "I can pay {}"}},
	"debt":      {"Balance", "amount", []string{"I owe {}", "my debt is {}"}},
	"employer":  {"Employer", "firm", []string{"I work at {}", "my employer is {}"}},
	"interview": {"Appointment", "firm", []string{"I applied to {}", "I have an interview at {}"}},
	"course":    {"Course", "course", []string{"the course is {}", "I study {}"}},
	"mark":      {"Mark", "mark", []string{"my mark is {}", "I scored {}"}},
	"allergy":   {"Diet", "food", []string{"I cannot eat {}", "allergic to {}"}},
	"guest":     {"Guest", "friend", []string{"I come with {}", "I bring {}"}},
	"quarrel":   {"Chat", "friend", []string{"I am angry with {}", "I had a fight with {}"}},
	"dating":    {"Friend", "friend", []string{"I am dating {}", "I am in love with {}"}},
	"agreed":    {"Contact", "phone", []string{"{friend} lets me share {}", "{friend} agreed to share {}"}},
	"refused":   {"Contact", "phone", []string{"{friend} asked me to hide {}", "{friend} never agreed to share {}"}},
}

// The transmission principles of the release.
const (
	confidentiality = "Confidentiality" // unrelated information is not shared
	proportionality = "Proportionality" // no more than the task needs
	consent         = "Consent"         // the person concerned must agree
)

// norm is a task with the information that may flow in its context. The lists name kinds: fits may be shared, unrelated
// breaks Confidentiality, tooMuch breaks Proportionality. A task with askFriend also has the kinds "agreed" and
// "refused", for Consent.
type norm struct {
	domain, recipient, task string // the recipient as the task names it: "my brother"
	fits                    []string
	unrelated               []string
	tooMuch                 []string
	askFriend               bool
}

func words(s string) []string { return strings.Fields(s) }

// norms are three tasks for each of the ten domains.
var norms = []norm{
	{"Hospitality", "the hotel desk", "book a room", words("name arrival phone amount"),
		words("medicine salary pin quarrel"), words("passport employer"), false},
	{"Hospitality", "the restaurant", "reserve a table", words("name date time allergy guest"),
		words("illness account debt"), words("address"), true},
	{"Hospitality", "the tour guide", "join a tour", words("name date phone guest"),
		words("salary password mark"), words("passport"), true},
	{"Healthcare", "the doctor", "get an appointment", words("name illness medicine date"),
		words("account mark quarrel"), words("salary employer"), false},
	{"Healthcare", "the pharmacy", "refill my medicine", words("name medicine phone"),
		words("pin debt interview"), words("illness address"), false},
	{"Healthcare", "the dentist", "move my visit", words("name date time phone"),
		words("account dating password"), words("illness"), false},
	{"Entertainment", "the box office", "buy tickets", words("name show date amount"),
		words("illness salary quarrel"), words("passport address"), false},
	{"Entertainment", "the cinema", "change my seats", words("show time order"),
		words("pin dating medicine"), words("employer"), false},
	{"Entertainment", "the concert club", "join the guest list", words("name show guest phone"),
		words("debt medicine mark"), words("account"), true},
	{"Finance", "the bank", "ask for a loan", words("name salary employer amount"),
		words("illness dating medicine"), words("password"), false},
	{"Finance", "the card service", "report a lost card", words("name account phone date"),
		words("illness interview quarrel"), words("pin password"), false},
	{"Finance", "the tax adviser", "prepare my taxes", words("name salary employer address"),
		words("medicine quarrel dating"), words("password pin"), false},
	{"eCommerce", "the web shop", "order a product", words("name product address phone"),
		words("medicine salary illness"), words("pin"), false},
	{"eCommerce", "the shop support", "return a product", words("order product date"),
		words("illness debt dating"), words("password passport"), false},
	{"eCommerce", "the seller", "ask about a price", words("product amount name"),
		words("quarrel mark medicine"), words("account address"), false},
	{"Education", "the teacher", "ask for more time", words("name course date"),
		words("salary debt dating"), words("medicine"), false},
	{"Education", "the school office", "sign up for a course", words("name course phone address"),
		words("illness quarrel account"), words("mark"), false},
	{"Education", "the tutor", "plan a lesson", words("course mark time date"),
		words("account medicine dating"), words("address"), true},
	{"Government", "the passport office", "renew a passport", words("name passport address date"),
		words("illness mark dating"), words("salary"), false},
	{"Government", "the city hall", "register a car", words("name plate address phone"),
		words("medicine quarrel interview"), words("salary"), false},
	{"Government", "the tax office", "ask about a file", words("name case phone"),
		words("illness dating quarrel"), words("pin password"), false},
	{"Family", "my brother", "plan a dinner", words("date time guest allergy"),
		words("password pin interview"), words("salary"), true},
	{"Family", "my mother", "plan a visit", words("arrival time guest"),
		words("debt account password"), words("medicine dating"), true},
	{"Family", "my cousin", "plan a birthday", words("date time address"),
		words("salary illness mark"), words("gift"), true},
	{"Friends", "my friend", "plan a party", words("date time address guest"),
		words("debt illness account"), words("gift"), true},
	{"Friends", "my neighbor", "go to a show", words("show time date"),
		words("salary quarrel password"), words("account"), true},
	{"Friends", "my team mate", "share a ride", words("time address plate phone"),
		words("medicine mark dating"), words("passport"), true},
	{"Work", "my manager", "ask for a day off", words("name date arrival"),
		words("interview dating debt"), words("illness medicine"), false},
	{"Work", "my colleague", "set up a meeting", words("date time phone"),
		words("salary password quarrel"), words("illness"), true},
	{"Work", "the help desk", "get a laptop repaired", words("name phone product time"),
		words("salary illness dating"), words("password"), false},
}

// The syllables and words of the values. They are few, so that a small vocabulary has each as one token; their
// combinations are many, so that a model must copy a value and cannot remember it.
var (
	nameHeads   = words("Ba Be Da Do Fa Ga Je Ka Ke La Li Ma Me Na No Ra Ri Sa Ta Vi")
	nameTails   = words("bin cia dra fan gor la len lo mi na nik ra rek sha to vin wen yo zan zu")
	familyHeads = words("Bor Cal Dun Fer Gal Hol Jas Kel Lund Mar Nor Ost Pel Quin Ros Sol Tor Ul Ver Wil")
	familyTails = words("acre berg by den ez field ford gate ham ic lund man more ov ridge sen ski ton ward well")
	drugHeads   = words("Alo Bexa Cori Dala Eno Flu Gaba Hexo Iba Keto Levo Mela Nuva " +
		"Oxa Pento Rivo Sulfa Trima Vena Zola")
	drugTails   = words("cet dine fen lin mab mide nol pam pril rin statin tide vir xan zole zide")
	firmTails   = words("Bank Group Labs Motors Works Foods Steel Soft")
	streetTails = words("Lane Road Street Hill Square Row")
	months      = words("January February March April May June July August September October November December")
	codeLetters = words("A B D F H K M N R T W X")
	sickAs      = words("mild severe chronic early acute late")
	sickWith    = words("asthma anemia angina arthritis cataract colitis diabetes eczema epilepsy gastritis " +
		"glaucoma gout hepatitis insomnia lupus migraine psoriasis scoliosis sinusitis tinnitus ulcer vertigo")
	lookAs = words("black blue brown gray green orange pink purple red silver white yellow")
	things = words("backpack blanket camera chair clock coat guitar helmet jacket kettle lamp mirror phone " +
		"scarf sofa speaker tent vase wallet watch")
	showAs = words("Broken Distant Endless Final Frozen Golden Hidden Lonely Lost Midnight Paper Silent")
	showOf = words("Bridge Castle Dream Empire Forest Garden Harbor Island Journey Kingdom " +
		"Ocean River Shadow Summer Tower Voyage")
	subjects = words("algebra biology chemistry drawing economics French geometry history Italian Latin " +
		"music physics Russian Spanish statistics")
	foodAs = words("dried fresh fried green raw red smoked white")
	foods  = words("almonds beans berries cherries clams grapes lentils mussels onions oysters " +
		"peanuts peppers plums prawns salmon walnuts")
)
