//! Sets of tolerations.

use orlop_kinds::accessors::{present, text};
use serde_json::Value;

/// Merges tolerations. One that another covers is left out.
pub(super) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    let mut merged: Vec<Value> = Vec::new();
    for (index, toleration) in all.iter().enumerate() {
        let is_covered_before = merged.iter().any(|known| covers(known, toleration));
        // Of equal ones the first is kept.
        let mut later = all.iter().skip(index + 1);
        let is_covered_later = later.any(|other| other != toleration && covers(other, toleration));
        if !is_covered_before && !is_covered_later {
            merged.push((*toleration).clone());
        }
    }
    merged
}

/// Returns true if every toleration is covered by one of a list.
pub(super) fn are_allowed(tolerations: &[Value], allowed: &[Value]) -> bool {
    allowed.is_empty()
        || tolerations.iter().all(|toleration| allowed.iter().any(|allowed| covers(allowed, toleration)))
}

/// Returns true if a toleration tolerates all that another does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let (key, operator, effect) = (text(wide, "/key"), text(wide, "/operator"), text(wide, "/effect"));
    if key != text(narrow, "/key") && !(key.is_empty() && operator == "Exists") {
        return false;
    }
    if !effect.is_empty() && effect != text(narrow, "/effect") {
        return false;
    }
    let seconds = |toleration| present(toleration, "/tolerationSeconds").and_then(Value::as_i64);
    if let ("NoExecute", Some(longest)) = (effect, seconds(wide))
        && seconds(narrow).is_none_or(|narrow| narrow > longest)
    {
        return false;
    }
    match operator {
        "Exists" => true,
        "" | "Equal" => {
            text(narrow, "/operator") == "Equal" && text(narrow, "/value") == text(wide, "/value")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn covered_tolerations_are_left_out() {
        let all = json!({"operator": "Exists"});
        let one = json!({"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"});
        let merged =
            |one: &Value, other: &Value| merge(std::slice::from_ref(one), std::slice::from_ref(other));
        assert_eq!(merged(&one, &all), std::slice::from_ref(&all));
        assert_eq!(merged(&one, &one), std::slice::from_ref(&one));
        let short = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5});
        let long = json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 50});
        assert_eq!(merged(&short, &long), std::slice::from_ref(&long));
        assert!(are_allowed(&[short], &[long]) && !are_allowed(&[all], &[one]));
    }
}
