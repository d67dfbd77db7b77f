"""English words whose forms have no common stem: ``lose`` and ``lost``, ``child`` and ``children``.

The index stems by rule (Porter), which can't know these; a question is widened by them instead, so that nothing of
what is stored depends on this list. Left out: words of pure grammar (be, have, do), forms that the stemmer joins
itself (shaken), forms that are more often another word (bore, wound, ground), and five verbs that go with anything
(get, go, make, take, say), which cost LoCoMo 0.003 of its recall@10.
"""

_GROUPS = """
arise arose arisen
awake awoke awoken
beat beaten
become became
begin began begun
bend bent
bite bit bitten
bleed bled
blow blew blown
break broke broken
breed bred
bring brought
build built
burn burnt
buy bought
catch caught
choose chose chosen
cling clung
come came
creep crept
deal dealt
dig dug
draw drew drawn
dream dreamt
drink drank drunk
drive drove driven
eat ate eaten
fall fell fallen
feed fed
feel felt
fight fought
find found
flee fled
fly flew flown
forbid forbade forbidden
forget forgot forgotten
forgive forgave forgiven
freeze froze frozen
give gave given
grow grew grown
hang hung
hear heard
hide hid hidden
hold held
keep kept
kneel knelt
know knew known
lead led
lean leant
learn learnt
leave left
lend lent
lie lay lain
light lit
lose lost
mean meant
meet met
overcome overcame
pay paid
ride rode ridden
ring rang rung
rise rose risen
run ran
see saw seen
seek sought
sell sold
send sent
sew sewn
shake shook
shine shone
shoot shot
show shown
shrink shrank shrunk
sing sang sung
sink sank sunk
sit sat
sleep slept
slide slid
smell smelt
speak spoke spoken
speed sped
spell spelt
spend spent
spill spilt
spin spun
spoil spoilt
spring sprang sprung
stand stood
steal stole stolen
stick stuck
sting stung
stink stank stunk
strike struck stricken
swear swore sworn
sweep swept
swell swollen
swim swam swum
swing swung
teach taught
tear tore torn
tell told
think thought
throw threw thrown
understand understood
undertake undertook
wake woke woken
wear wore worn
weave wove woven
weep wept
win won
withdraw withdrew withdrawn
write wrote written
calf calves
child children
foot feet
goose geese
grandchild grandchildren
half halves
knife knives
leaf leaves
life lives
loaf loaves
man men
mouse mice
person people
shelf shelves
thief thieves
tooth teeth
wife wives
wolf wolves
woman women
"""
_FORMS = {word: group.split() for group in _GROUPS.strip().splitlines() for word in group.split()}


def other_forms(word: str) -> list[str]:
    """The other forms of a folded word; none for a regular one."""
    return [form for form in _FORMS.get(word, ()) if form != word]
