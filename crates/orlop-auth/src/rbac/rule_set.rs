//! The rules of a role, as decisions read them.

use std::{hash::BuildHasher, ops::BitOr};

use super::{PolicyRule, rule::ALL};
use crate::request::Attributes;

/// The rules of a role, each with a filter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleSet {
    rules: Box<[PolicyRule]>,
    filters: Box<[BloomFilter]>,
}

impl RuleSet {
    pub(super) fn new(rules: Vec<PolicyRule>) -> Self {
        Self { filters: rules.iter().map(BloomFilter::of_rule).collect(), rules: rules.into() }
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[PolicyRule] {
        &self.rules
    }

    /// Returns true if a rule allows a request, whose bits are `wanted`.
    pub(super) fn allow(&self, attributes: &Attributes, wanted: BloomFilter) -> bool {
        let mut rules = self.filters.iter().zip(&self.rules);
        rules.any(|(filter, rule)| filter.may_contain(wanted) && rule.allows(attributes))
    }
}

/// Bloom filters of the verbs and resources of a rule, or of a request. A rule that lacks a bit of a request does not allow it:
/// a decision passes over most rules by a word or two each, where comparing names would fetch dozens of them from all
/// over the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BloomFilter {
    verbs: u64,
    resources: u64,
}

impl BloomFilter {
    /// Returns the bits of a request. One that is not for a resource has no bit of one.
    pub(super) fn of_request(attributes: &Attributes) -> Self {
        let resources = if attributes.is_resource_request { bit(&attributes.resource) } else { 0 };
        Self { verbs: bit(attributes.verb.as_str()), resources }
    }

    fn of_rule(rule: &PolicyRule) -> Self {
        let bits = |name: &str| if name == ALL { u64::MAX } else { bit(name) };
        // `pods/log` and `*/scale` are for subresources of pods and of everything.
        let resources = rule.resources.iter().map(|name| name.split('/').next().unwrap_or_default());
        Self {
            verbs: rule.verbs.iter().map(|verb| bits(verb)).fold(0, BitOr::bitor),
            resources: resources.map(bits).fold(0, BitOr::bitor),
        }
    }

    fn may_contain(self, request: Self) -> bool {
        self.verbs & request.verbs == request.verbs && self.resources & request.resources == request.resources
    }
}

/// Returns the bit of a name.
fn bit(name: &str) -> u64 {
    1 << (foldhash::fast::FixedState::default().hash_one(name) % u64::from(u64::BITS))
}
