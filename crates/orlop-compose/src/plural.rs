//! English plurals of kinds, as kro forms them: a CRD's name is its identity, so the rules may not drift.

/// Words whose plural no suffix rule gives.
const IRREGULAR: &[(&str, &str)] = &[
    ("matrix", "matrices"),
    ("index", "indices"),
    ("mouse", "mice"),
    ("louse", "lice"),
    ("ox", "oxen"),
    ("quiz", "quizzes"),
    ("octopus", "octopi"),
    ("goose", "geese"),
    ("tooth", "teeth"),
    ("foot", "feet"),
    ("bus", "buses"),
    ("fez", "fezzes"),
    ("piano", "pianos"),
    ("halo", "halos"),
    ("photo", "photos"),
    ("alumnus", "alumni"),
    ("antenna", "antennas"),
    ("apex", "apexes"),
    ("appendix", "appendices"),
    ("axis", "axes"),
    ("bacterium", "bacteria"),
    ("codex", "codices"),
    ("corpus", "corpora"),
    ("curriculum", "curriculums"),
    ("die", "dice"),
    ("dwarf", "dwarves"),
    ("focus", "foci"),
    ("formula", "formulas"),
    ("fungus", "fungi"),
    ("genus", "genera"),
    ("hoof", "hooves"),
    ("locus", "loci"),
    ("nucleus", "nuclei"),
    ("opus", "opera"),
    ("phenomenon", "phenomena"),
    ("radius", "radiuses"),
    ("referendum", "referendums"),
    ("stimulus", "stimuli"),
    ("stratum", "strata"),
    ("syllabus", "syllabi"),
    ("symposium", "symposiums"),
    ("thief", "thieves"),
    ("vertex", "vertices"),
    ("vortex", "vortices"),
    ("wolf", "wolves"),
    ("datum", "data"),
    ("house", "houses"),
    ("shoe", "shoes"),
];

/// Words that are their own plural.
const UNCOUNTABLE: &[&str] = &[
    "series",
    "equipment",
    "information",
    "rice",
    "money",
    "species",
    "fish",
    "sheep",
    "jeans",
    "police",
    "aircraft",
    "bison",
    "deer",
    "grouse",
    "moose",
    "offspring",
    "salmon",
    "shrimp",
    "swine",
    "trout",
    "tuna",
    "news",
    "media",
    "metadata",
];

/// Suffixes and what becomes of them; the first that fits counts.
const SUFFIXES: &[(&str, &str)] = &[
    ("iterion", "iteria"),
    ("campus", "campuses"),
    ("person", "people"),
    ("randum", "randa"),
    ("child", "children"),
    ("alias", "aliases"),
    ("actus", "acti"),
    ("adium", "adia"),
    ("focus", "foci"),
    ("man", "men"),
    ("atum", "ata"),
    ("atus", "atuses"),
    ("irus", "iri"),
    ("dium", "diums"),
    ("ovum", "ova"),
    ("base", "bases"),
    ("wife", "wives"),
    ("life", "lives"),
    ("knife", "knives"),
    ("isis", "ises"),
    ("stis", "stes"),
    ("oose", "eese"),
    ("ium", "ia"),
    ("sis", "ses"),
    ("oaf", "oaves"),
    ("oot", "eet"),
    ("box", "boxes"),
    ("ode", "odes"),
    ("dge", "dges"),
    ("ize", "izes"),
    ("tz", "tzes"),
    ("ex", "ices"),
    ("lf", "lves"),
    ("rf", "rves"),
    ("x", "xes"),
    ("ch", "ches"),
    ("ss", "sses"),
    ("sh", "shes"),
    ("oe", "oes"),
    ("io", "ios"),
    ("o", "oes"),
];

/// Returns the plural of a lower-case word; a plural is returned as it is.
pub(crate) fn pluralize(word: &str) -> String {
    if UNCOUNTABLE.contains(&word) || IRREGULAR.iter().any(|(_, plural)| *plural == word) {
        return word.to_owned();
    }
    if let Some((_, plural)) = IRREGULAR.iter().find(|(singular, _)| *singular == word) {
        return (*plural).to_owned();
    }
    for (suffix, replacement) in SUFFIXES {
        if let Some(stem) = word.strip_suffix(suffix) {
            return format!("{stem}{replacement}");
        }
        if word.ends_with(replacement) {
            return word.to_owned();
        }
    }
    if let Some(stem) = word.strip_suffix('y') {
        let vowel = stem.ends_with(['a', 'e', 'i', 'o', 'u']) && !stem.ends_with("qu");
        return if vowel { format!("{word}s") } else { format!("{stem}ies") };
    }
    if word.ends_with('s') { word.to_owned() } else { format!("{word}s") }
}

#[cfg(test)]
mod tests {
    use super::pluralize;

    #[test]
    fn plural_follows_kro_table() {
        for (word, plural) in [
            ("webapp", "webapps"),
            ("policy", "policies"),
            ("class", "classes"),
            ("box", "boxes"),
            ("gateway", "gateways"),
            ("database", "databases"),
            ("person", "people"),
            ("settings", "settings"),
            ("networkstack", "networkstacks"),
            ("ingresstriangle", "ingresstriangles"),
            ("virus", "viri"),
            ("index", "indices"),
            ("mesh", "meshes"),
            ("repository", "repositories"),
        ] {
            assert_eq!(pluralize(word), plural, "{word}");
            assert_eq!(pluralize(plural), plural, "{plural}");
        }
    }
}
