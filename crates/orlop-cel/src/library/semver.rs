//! Semantic versions.

use orlop_regex::go_quote::quote;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::EvalError;
use crate::functions::{CallContext, EvalResult, Functions};
use crate::library::opaque::{Opaque, SEMVER};
use crate::types::Type;
use crate::value::Value;

/// A semantic version. Build metadata takes no part in comparisons and is not kept.
#[derive(Clone, Debug)]
pub struct Version {
    numbers: [u64; 3],
    pre_release: Vec<Identifier>,
}

/// A part of a pre-release version. Numbers come before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

pub(crate) fn declare(f: &mut Functions) {
    let normalizing = || [Type::String, Type::Bool];
    f.global("semver", "string_to_semver", [Type::String], SEMVER, to_semver);
    f.global("semver", "string_bool_to_semver", normalizing(), SEMVER, to_semver);
    f.global("isSemver", "is_semver_string", [Type::String], Type::Bool, is_semver);
    f.global("isSemver", "is_semver_string_bool", normalizing(), Type::Bool, is_semver);
    f.member("isGreaterThan", "semver_is_greater_than", [SEMVER, SEMVER], Type::Bool, |_, args| {
        order(args).map(|order| Value::Bool(order.is_gt()))
    });
    f.member("isLessThan", "semver_is_less_than", [SEMVER, SEMVER], Type::Bool, |_, args| {
        order(args).map(|order| Value::Bool(order.is_lt()))
    });
    f.member("compareTo", "semver_compare_to", [SEMVER, SEMVER], Type::Int, |_, args| {
        order(args).map(|order| Value::Int(order as i64))
    });
    f.member("major", "semver_major", [SEMVER], Type::Int, |_, args| number(args, 0));
    f.member("minor", "semver_minor", [SEMVER], Type::Int, |_, args| number(args, 1));
    f.member("patch", "semver_patch", [SEMVER], Type::Int, |_, args| number(args, 2));
}

fn parsed(args: &[Value<'_>]) -> Result<Result<Version, String>, EvalError> {
    match args {
        [Value::String(text)] => Ok(parse(text)),
        [Value::String(text), Value::Bool(false)] => Ok(parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(normalize(text).and_then(|text| parse(&text))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn to_semver<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    let version = parsed(args)?.map_err(EvalError::Failed)?;
    Ok(Value::Opaque(Opaque::Semver(Arc::new(version))))
}

fn is_semver<'a>(_: CallContext<'_>, args: &[Value<'a>]) -> EvalResult<'a> {
    parsed(args).map(|version| Value::Bool(version.is_ok()))
}

fn order(args: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match args {
        [Value::Opaque(Opaque::Semver(one)), Value::Opaque(Opaque::Semver(other))] => Ok(one.compare(other)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn number<'a>(args: &[Value<'a>], index: usize) -> EvalResult<'a> {
    match args {
        [Value::Opaque(Opaque::Semver(version))] => Ok(Value::Int(version.numbers[index] as i64)),
        _ => Err(EvalError::no_such_overload()),
    }
}

impl Version {
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        // A version without a pre-release comes after all its pre-releases.
        let released = self.pre_release.is_empty().cmp(&other.pre_release.is_empty());
        self.numbers.cmp(&other.numbers).then(released).then_with(|| self.pre_release.cmp(&other.pre_release))
    }
}

/// Parses `major.minor.patch[-pre-release][+build]`.
fn parse(text: &str) -> Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, patch] = parts.as_slice() else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let (major, minor) = (core_number(major, "major")?, core_number(minor, "minor")?);
    let (patch, build) = match patch.split_once('+') {
        Some((patch, build)) => (patch, Some(build)),
        None => (*patch, None),
    };
    let (patch, pre_release) = match patch.split_once('-') {
        Some((patch, pre_release)) => (patch, Some(pre_release)),
        None => (patch, None),
    };
    let numbers = [major, minor, core_number(patch, "patch")?];
    let pre_release = match pre_release {
        Some(text) => text.split('.').map(pre_release_part).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !is_identifier(part) {
            return Err(format!("Invalid character(s) found in build meta data {part}", part = quote(part)));
        }
    }
    Ok(Version { numbers, pre_release })
}

fn core_number(text: &str, name: &str) -> Result<u64, String> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number {text}", text = quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        let title = format!("{}{}", name[..1].to_ascii_uppercase(), &name[1..]);
        return Err(format!("{title} number must not contain leading zeroes {text}", text = quote(text)));
    }
    parsed_number(text)
}

fn parsed_number(text: &str) -> Result<u64, String> {
    let wrong = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {text}: {wrong}", text = quote(text)))
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn pre_release_part(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if !is_identifier(text) {
        return Err(format!("Invalid character(s) found in prerelease {text}", text = quote(text)));
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Ok(Identifier::Word(text.to_owned()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!(
            "Numeric PreRelease version must not contain leading zeroes {text}",
            text = quote(text)
        ));
    }
    parsed_number(text).map(Identifier::Number)
}

/// Drops a leading `v`, leading zeros, and fills up to three numbers: `v01.2` becomes `1.2.0`.
fn normalize(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in parts.iter_mut().filter(|part| part.len() > 1) {
        let trimmed = part.trim_start_matches('0');
        let zero = if trimmed.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
        *part = format!("{zero}{trimmed}");
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}
