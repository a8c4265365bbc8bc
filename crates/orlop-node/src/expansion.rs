//! Expansion of `$(VAR)` in commands, arguments and environment values.

/// Replaces references to variables. `$$` stands for `$`; a reference to an unknown variable stays as it is.
pub(crate) fn expand<'a>(input: &str, lookup: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut output = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(position) = rest.find('$') {
        output.push_str(&rest[..position]);
        rest = &rest[position + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            output.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            match lookup(name) {
                Some(value) => output.push_str(value),
                None => {
                    output.push_str("$(");
                    output.push_str(name);
                    output.push(')');
                }
            }
            rest = after;
        } else {
            output.push('$');
        }
    }
    output.push_str(rest);
    output
}

/// Returns the first variable that a text refers to and that is not known.
pub(crate) fn unknown(input: &str, is_known: impl Fn(&str) -> bool) -> Option<String> {
    let missing = std::cell::RefCell::new(None);
    let _ = expand(input, |name| {
        if !is_known(name) && missing.borrow().is_none() {
            missing.replace(Some(name.to_owned()));
        }
        None::<&str>
    });
    missing.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_expanded_as_kubernetes_does() {
        let lookup = |name: &str| match name {
            "A" => Some("1"),
            "EMPTY" => Some(""),
            _ => None,
        };
        for (input, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(B)", "$(B)"),
            ("$(EMPTY)", ""),
            ("$A $ $(A", "$A $ $(A"),
            ("$(A)$", "1$"),
        ] {
            assert_eq!(expand(input, lookup), expected, "{input}");
        }
        assert_eq!(unknown("$(A)$(B)$(C)", |name| name == "A"), Some("B".into()));
    }
}
