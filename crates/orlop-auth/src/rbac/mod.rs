//! RBAC: roles are lists of rules, bindings grant roles to subjects.
//!
//! - [`rule`]: policy rules, and what they allow and cover;
//! - [`objects`]: roles and bindings, read from their JSON;
//! - [`rule_set`]: the rules of a role, as decisions read them;
//! - [`index`]: bindings by subject and namespace, as an immutable snapshot that a writer replaces;
//! - [`escalation`]: nobody grants what they do not hold;
//! - [`bootstrap`]: the default roles and bindings of a cluster; [`reconcile`]: how existing ones are brought up to
//!   date.
//!
//! Everything is pure. The server feeds the index with what it watches.

pub mod bootstrap;
pub mod escalation;
pub mod index;
pub mod objects;
pub mod reconcile;
pub mod rule;
pub mod rule_set;

pub use index::{Change, Index, IndexWriter, Target};
pub use objects::{Binding, RoleRef, Subject};
pub use rule::PolicyRule;
pub use rule_set::RuleSet;

/// API group of roles and bindings.
pub const GROUP: &str = "rbac.authorization.k8s.io";
