//! Command lines as Go programs read them: `--name=value`, `--name value`, `--name`.

use std::ffi::OsString;

use anyhow::{Context, bail};

/// Flags in the order given.
#[derive(Debug, Default)]
pub(super) struct Flags(Vec<(String, Option<String>)>);

impl Flags {
    /// Parses a command line. A flag without `=` takes the next argument as its value, unless that is a flag.
    pub(super) fn parse(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<Self> {
        let mut flags = Vec::new();
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let argument = argument.into_string().ok().context("arguments must be UTF-8")?;
            let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                bail!("unexpected argument {argument:?}");
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => {
                    let is_value = |next: &OsString| !next.to_string_lossy().starts_with('-');
                    let next = arguments.next_if(is_value).map(|next| next.to_string_lossy().into_owned());
                    (flag, next)
                }
            };
            flags.push((name.to_owned(), value));
        }
        Ok(Self(flags))
    }

    /// Returns true if a flag is given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| given == name)
    }

    /// Returns the last value of a flag.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(given, _)| given == name).and_then(|(_, value)| value.as_deref())
    }

    /// Adds a flag.
    pub(super) fn push(&mut self, name: &str, value: String) {
        self.0.push((name.to_owned(), Some(value)));
    }

    /// Removes a flag. Returns its last value.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let mut value = None;
        self.0.retain_mut(|(given, its_value)| {
            let is_other = given != name;
            if !is_other {
                value = its_value.take();
            }
            is_other
        });
        value
    }

    /// Removes a flag that is true or false. Alone, it is true.
    pub(super) fn take_bool(&mut self, name: &str) -> anyhow::Result<Option<bool>> {
        if !self.has(name) {
            return Ok(None);
        }
        match self.take(name).as_deref() {
            None | Some("true" | "1" | "t" | "T" | "TRUE" | "True") => Ok(Some(true)),
            Some("false" | "0" | "f" | "F" | "FALSE" | "False") => Ok(Some(false)),
            Some(other) => bail!("invalid argument {other:?} for \"--{name}\" flag: write true or false"),
        }
    }

    /// Removes flags that have no effect here. Each is logged.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        self.0.retain(|(name, _)| {
            let ignored = names.contains(&name.as_str());
            if ignored {
                eprintln!("--{name} has no effect on Orlop");
            }
            !ignored
        });
    }

    /// Renames a flag.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        for (name, _) in &mut self.0 {
            if name == from {
                to.clone_into(name);
            }
        }
    }

    /// Returns what is left as arguments of this program.
    pub(super) fn into_arguments(self) -> impl Iterator<Item = String> {
        self.0.into_iter().map(|(name, value)| match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("--{name}"),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn parse(arguments: &[&str]) -> Flags {
        Flags::parse(arguments.iter().map(OsString::from)).unwrap()
    }

    #[test]
    fn values_follow_an_equals_sign_or_are_the_next_argument() {
        let mut flags = parse(&["--a=1", "--b", "2", "--c", "--a=3", "-v=4"]);
        assert_eq!(flags.take("a").as_deref(), Some("3"));
        assert_eq!(flags.take("b").as_deref(), Some("2"));
        assert_eq!(flags.take_bool("c").unwrap(), Some(true));
        assert_eq!(flags.take("v").as_deref(), Some("4"));
        assert_eq!(flags.into_arguments().count(), 0);
    }

    #[test]
    fn other_arguments_are_refused() {
        let error = Flags::parse(["serve"].iter().map(OsString::from)).unwrap_err();
        assert_eq!(error.to_string(), "unexpected argument \"serve\"");
        let error = parse(&["--c=maybe"]).take_bool("c").unwrap_err();
        assert!(error.to_string().contains("--c"), "{error}");
    }
}
