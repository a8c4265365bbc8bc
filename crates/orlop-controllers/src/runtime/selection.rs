//! The meaning of `--controllers`.

/// A controller name that is not registered.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no controller {name:?}; there are: {}", known.join(", "))]
pub struct UnknownController {
    /// The name.
    pub name: String,
    /// The registered names.
    pub known: Vec<&'static str>,
}

/// The choice of no controller.
const NONE: &str = "-*";

/// Selects controllers as kube-controller-manager's `--controllers` does: `*` for all, `name` for one, `-name`
/// to leave one out; also `-*` for none. Without any positive choice the defaults are meant.
pub fn select(
    known: &[&'static str],
    defaults: &[&'static str],
    choices: &[String],
) -> Result<Vec<&'static str>, UnknownController> {
    let find = |name: &str| {
        let found = known.iter().copied().find(|known| *known == name);
        found.ok_or_else(|| UnknownController { name: name.to_owned(), known: known.to_vec() })
    };
    let mut selected: Vec<&'static str> = if choices.iter().any(|choice| choice == "*") {
        known.to_vec()
    } else if choices.iter().all(|choice| choice.starts_with('-') && choice != NONE) {
        defaults.to_vec()
    } else {
        Vec::new()
    };
    for choice in choices.iter().filter(|choice| !["*", NONE].contains(&choice.as_str())) {
        match choice.strip_prefix('-') {
            Some(name) => {
                let name = find(name)?;
                selected.retain(|selected| *selected != name);
            }
            None => {
                let name = find(choice)?;
                if !selected.contains(&name) {
                    selected.push(name);
                }
            }
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_matches_kube_controller_manager() {
        let known = ["a-controller", "b-controller", "c-controller"];
        let defaults = ["a-controller", "b-controller"];
        let select = |choices: &[&str]| {
            select(&known, &defaults, &choices.iter().map(|choice| (*choice).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(select(&[]).unwrap(), defaults);
        assert_eq!(select(&["*"]).unwrap(), known);
        assert_eq!(select(&["-*"]).unwrap(), [""; 0]);
        assert_eq!(select(&["*", "-b-controller"]).unwrap(), ["a-controller", "c-controller"]);
        assert_eq!(select(&["-b-controller"]).unwrap(), ["a-controller"]);
        assert_eq!(select(&["b-controller"]).unwrap(), ["b-controller"]);
        let unknown = select(&["nonsense"]).unwrap_err();
        assert_eq!(unknown.name, "nonsense");
        assert!(unknown.to_string().ends_with("there are: a-controller, b-controller, c-controller"));
    }
}
