//! Filters of the fields that writers of an endpoint may own (resetFields).

use super::{
    path_element::{Path, PathElement},
    set::{Node, Set},
};

/// A field filter. Paths are written `/spec/replicas`; `*` matches any list item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All but these and their descendants.
    AllBut(Set),
    /// These, their descendants and their ancestors.
    Only(Vec<Vec<String>>),
}

impl Filter {
    /// Creates a filter of all but these fields and their descendants.
    pub fn all_but(paths: &[&str]) -> Self {
        Self::AllBut(Set::from_paths(paths.iter().map(|path| Path::of_fields(&steps(path)))))
    }

    /// Creates a filter of these fields, their descendants and their ancestors.
    pub fn only(paths: &[&str]) -> Self {
        Self::Only(paths.iter().map(|path| steps(path).into_iter().map(str::to_owned).collect()).collect())
    }

    /// Returns the part of a set that passes.
    pub fn apply(&self, set: Set) -> Set {
        match self {
            Self::AllBut(fields) if fields.is_empty() => set,
            Self::AllBut(fields) => set.recursive_difference(fields),
            Self::Only(patterns) => {
                only(&set, &patterns.iter().map(Vec::as_slice).collect::<Vec<&[String]>>())
            }
        }
    }
}

fn steps(path: &str) -> Vec<&str> {
    path.split('/').filter(|step| !step.is_empty()).collect()
}

fn only(set: &Set, patterns: &[&[String]]) -> Set {
    set.map_nodes(|node| {
        let further: Vec<&[String]> = patterns
            .iter()
            .filter_map(|pattern| pattern.split_first())
            .filter(|(step, _)| matches(step, &node.element))
            .map(|(_, rest)| rest)
            .collect();
        if further.iter().any(|rest| rest.is_empty()) {
            return node.clone();
        }
        let (member, children) = (node.member && !further.is_empty(), only(&node.children, &further));
        Node { element: node.element.clone(), member, children }
    })
}

fn matches(step: &str, element: &PathElement) -> bool {
    match element {
        PathElement::Field(name) => **name == *step,
        _ => step == "*",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(fields: &serde_json::Value) -> Set {
        super::super::fields_v1::from_value(fields).unwrap_or_default()
    }

    #[test]
    fn filter_keeps_ancestors_of_passing_fields() {
        let owned = set(&json!({"f:metadata": {"f:labels": {}}, "f:spec": {".": {}, "f:nodeName": {},
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:resources": {"f:limits": {}}}}}}));
        assert_eq!(
            Filter::only(&["/spec/containers/*/resources"]).apply(owned.clone()),
            set(&json!({"f:spec": {".": {},
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:resources": {"f:limits": {}}}}}}))
        );
        assert_eq!(
            Filter::all_but(&["/spec"]).apply(owned.clone()),
            set(&json!({"f:metadata": {"f:labels": {}}}))
        );
        assert_eq!(Filter::all_but(&[]).apply(owned.clone()), owned);
        assert_eq!(Filter::only(&[]).apply(owned), Set::new());
    }
}
