//! Static cost estimator: bounds the cost of an expression on data that fits the schemas.
//!
//! One walk over the AST yields, for each node, its cost and its value's size. The size comes from the literal, from
//! the schema the value was read through, from the type (scalars have size one), or from the operands. A comprehension
//! costs its body times the maximal size of its range; the costs of its loop step and result follow cel-go's expansion
//! of each macro.

use std::sync::Arc;

use super::rules::{Argument, Rule};
use super::{CostEstimate, NEW_LIST, NEW_MAP, NEW_MESSAGE, SizeEstimate, Sizes};
use crate::ast::{
    Bind, Call, Comprehension, ComprehensionKind, Expr, ExprKind, Literal, OptMap, Select, SelectMode,
    operator,
};
use crate::checker::{Checked, Reference};
use crate::env::{Scope, Variable};
use crate::schema::Schema;
use crate::types::Type;

/// Estimates the cost of a checked expression.
pub(crate) fn estimate(scope: &Scope, checked: &Checked) -> CostEstimate {
    let locals = vec![None; checked.slots];
    Estimator { scope, checked, locals }.node(&checked.ast.root).cost
}

/// Estimated cost and size of one AST node.
#[derive(Clone, Debug)]
struct NodeEstimate {
    cost: CostEstimate,
    size: Option<SizeEstimate>,
    /// Sizes of keys and values, where the node is a collection made in the expression.
    entries: Option<Entries>,
    origin: Origin,
}

/// Sizes of the keys (or indices) and values of a collection.
#[derive(Clone, Copy, Debug)]
struct Entries {
    key: SizeEstimate,
    value: SizeEstimate,
}

/// Origin of a value: the schema node it was read through, if any.
///
/// Kubernetes' size estimator resolves paths without looking at their first element. A type name, a part of a computed
/// value and an iteration variable over one are therefore sized like the root of the document, which is 0 for
/// objects. The same quirk is kept here, because these numbers decide which rules are admitted.
#[derive(Clone, Debug)]
enum Origin {
    /// Not read from the document.
    Computed,
    Schema(Schema),
    /// Read through a variable with known sizes and no schema.
    Sized(Arc<Sizes>),
    /// A key of a map of the document. Kubernetes counts its size as zero.
    MapKey,
}

impl Origin {
    fn sized(sizes: Option<&Arc<Sizes>>) -> Self {
        sizes.cloned().map_or(Self::Computed, Self::Sized)
    }
}

impl NodeEstimate {
    fn of(cost: CostEstimate) -> Self {
        Self { cost, size: None, entries: None, origin: Origin::Computed }
    }

    fn size(&self) -> SizeEstimate {
        self.size.unwrap_or(SizeEstimate::UNKNOWN)
    }

    /// Fills in the size implied by the origin or the type.
    fn sized(mut self, ty: &Type) -> Self {
        let from_origin = match &self.origin {
            Origin::Schema(schema) => Some(SizeEstimate { min: 0, max: schema.max_elements() }),
            Origin::Sized(sizes) => Some(SizeEstimate { min: 0, max: sizes.max_elements() }),
            Origin::MapKey => Some(SizeEstimate::ZERO),
            Origin::Computed => None,
        };
        self.size = from_origin.or(self.size).or_else(|| ty.is_scalar().then(|| SizeEstimate::fixed(1)));
        self
    }
}

struct Estimator<'c> {
    scope: &'c Scope,
    checked: &'c Checked,
    locals: Vec<Option<NodeEstimate>>,
}

const ONE: CostEstimate = CostEstimate::fixed(1);

impl Estimator<'_> {
    fn node(&mut self, expr: &Expr) -> NodeEstimate {
        match &expr.kind {
            ExprKind::Literal(literal) => NodeEstimate {
                size: Some(SizeEstimate::fixed(literal_size(literal))),
                ..NodeEstimate::of(CostEstimate::ZERO)
            },
            ExprKind::Ident(_) => self.name(expr),
            ExprKind::Select(select) => self.select(expr, select),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(elements) => {
                let items: Vec<NodeEstimate> =
                    elements.iter().map(|element| self.node(&element.value)).collect();
                let entries = Entries { key: SizeEstimate::fixed(1), value: union_of(items.iter()) };
                let cost = sum(items.iter()).plus(CostEstimate::fixed(NEW_LIST));
                let size = Some(SizeEstimate::fixed(items.len() as u64));
                NodeEstimate { cost, size, entries: Some(entries), origin: Origin::Computed }
            }
            ExprKind::Map(map) => {
                let keys: Vec<NodeEstimate> = map.iter().map(|entry| self.node(&entry.key)).collect();
                let values: Vec<NodeEstimate> = map.iter().map(|entry| self.node(&entry.value)).collect();
                let entries = Entries { key: union_of(keys.iter()), value: union_of(values.iter()) };
                let cost = sum(keys.iter().chain(&values)).plus(CostEstimate::fixed(NEW_MAP));
                let size = Some(SizeEstimate::fixed(keys.len() as u64));
                NodeEstimate { cost, size, entries: Some(entries), origin: Origin::Computed }
            }
            ExprKind::Message(message) => {
                let values: Vec<NodeEstimate> =
                    message.fields.iter().map(|init| self.node(&init.value)).collect();
                NodeEstimate::of(sum(values.iter()).plus(CostEstimate::fixed(NEW_MESSAGE)))
            }
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
            ExprKind::Bind(bind) => self.bind(expr, bind),
            ExprKind::OptMap(opt_map) => self.opt_map(expr, opt_map),
        }
    }

    fn name(&self, expr: &Expr) -> NodeEstimate {
        let ty = self.checked.type_of(expr);
        match self.checked.reference(expr.id) {
            Reference::Local(slot) => match self.locals.get(*slot) {
                Some(Some(estimate)) => NodeEstimate { cost: ONE, ..estimate.clone() }.sized(ty),
                _ => NodeEstimate::of(ONE).sized(ty),
            },
            Reference::Variable(index) => {
                let origin = match self.scope.variables.get(*index) {
                    Some(Variable { schema: Some(schema), .. }) => Origin::Schema(schema.clone()),
                    Some(Variable { sizes: Some(sizes), .. }) => Origin::Sized(sizes.clone()),
                    _ => Origin::Computed,
                };
                NodeEstimate { origin, ..NodeEstimate::of(ONE) }.sized(ty)
            }
            Reference::TypeName(_) => NodeEstimate { origin: self.root(), ..NodeEstimate::of(ONE) }.sized(ty),
            _ => NodeEstimate::of(ONE),
        }
    }

    /// The origin of the document itself.
    fn root(&self) -> Origin {
        let schema = self.scope.variables.iter().find_map(|variable| variable.schema.clone());
        schema.map_or(Origin::Computed, Origin::Schema)
    }

    fn select(&mut self, expr: &Expr, select: &Select) -> NodeEstimate {
        if matches!(self.checked.reference(expr.id), Reference::Variable(_) | Reference::TypeName(_)) {
            return self.name(expr);
        }
        let operand = self.node(&select.operand);
        let ty = self.checked.type_of(expr);
        match select.mode {
            // has() itself is free.
            SelectMode::Presence => return NodeEstimate::of(operand.cost).sized(ty),
            SelectMode::Optional => return NodeEstimate::of(operand.cost.plus(ONE)).sized(ty),
            SelectMode::Value => {}
        }
        let priced = matches!(
            self.checked.type_of(&select.operand),
            Type::Map(..) | Type::Object(_) | Type::Message(_) | Type::Param(_)
        );
        let origin = match &operand.origin {
            Origin::Schema(schema) => {
                schema.field(&select.field).cloned().map_or(Origin::Computed, Origin::Schema)
            }
            Origin::Sized(sizes) => Origin::sized(sizes.field(&select.field)),
            Origin::Computed => self.root(),
            Origin::MapKey => Origin::Computed,
        };
        let cost = if priced { operand.cost.plus(ONE) } else { operand.cost };
        NodeEstimate { origin, ..NodeEstimate::of(cost) }.sized(ty)
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> NodeEstimate {
        let Reference::Call { function, overloads, static_target } = self.checked.reference(expr.id).clone()
        else {
            return NodeEstimate::of(CostEstimate::ZERO);
        };
        let target = call.target.as_deref().filter(|_| !static_target);
        let operands: Vec<&Expr> = target.into_iter().chain(&call.args).collect();
        let estimates: Vec<NodeEstimate> = operands.iter().map(|operand| self.node(operand)).collect();
        match function.name.as_str() {
            operator::AND | operator::OR => return logical(&estimates),
            operator::CONDITIONAL => return conditional(&estimates),
            "dyn" => {
                let argument =
                    estimates.into_iter().next().unwrap_or_else(|| NodeEstimate::of(CostEstimate::ZERO));
                return NodeEstimate { cost: argument.cost.plus(ONE), origin: Origin::Computed, ..argument };
            }
            _ => {}
        }
        let arguments: Vec<Argument<'_>> = operands
            .iter()
            .zip(&estimates)
            .map(|(operand, estimate)| Argument {
                ty: self.checked.type_of(operand),
                size: estimate.size,
                schema: match &estimate.origin {
                    Origin::Schema(schema) => Some(schema),
                    _ => None,
                },
                literal: match &operand.kind {
                    ExprKind::Literal(Literal::Int(value)) => Some(*value),
                    _ => None,
                },
            })
            .collect();
        let mut cost: Option<CostEstimate> = None;
        let mut size: Option<SizeEstimate> = None;
        for overload in overloads.iter().filter_map(|index| function.overloads.get(*index)) {
            let (one, result) = Rule::of(&function.name, &overload.id).estimate(&arguments);
            cost = Some(cost.map_or(one, |cost| cost.union(one)));
            size = match (size, result) {
                (Some(size), Some(result)) => Some(size.union(result)),
                (size, result) => size.or(result),
            };
        }
        let cost = sum(estimates.iter()).plus(cost.unwrap_or(CostEstimate::ZERO));
        let result = NodeEstimate { cost, size, entries: None, origin: Origin::Computed };
        let optional = operands.first().is_some_and(|first| self.checked.type_of(first).is_optional());
        let result = self.indexed(&function.name, &estimates, optional, result);
        // Sizes of the elements take precedence over the size implied by their origin.
        let element =
            estimates.first().filter(|_| function.name == operator::INDEX).and_then(|list| list.entries);
        let result = result.sized(self.checked.type_of(expr));
        NodeEstimate { size: element.map(|entries| entries.value).or(result.size), ..result }
    }

    /// Returns the entry sizes that indexing and concatenation take from their operands.
    fn indexed(
        &self,
        function: &str,
        operands: &[NodeEstimate],
        optional: bool,
        mut result: NodeEstimate,
    ) -> NodeEstimate {
        match (function, operands) {
            (operator::INDEX, [container, _]) => {
                result.origin = match &container.origin {
                    Origin::Schema(schema) => {
                        schema.elements().cloned().map_or(Origin::Computed, Origin::Schema)
                    }
                    Origin::Sized(sizes) => Origin::sized(sizes.values()),
                    Origin::Computed if !optional => self.root(),
                    Origin::Computed | Origin::MapKey => Origin::Computed,
                };
            }
            (operator::ADD, [one, other]) => result.entries = union_entries(one.entries, other.entries),
            _ => {}
        }
        result
    }

    fn comprehension(&mut self, expr: &Expr, comprehension: &Comprehension) -> NodeEstimate {
        let range = self.node(&comprehension.range);
        let count = range.size();
        self.enter_iteration(expr, comprehension, &range);
        let filter = comprehension.filter.as_ref().map(|filter| self.node(filter).cost);
        let body = self.node(&comprehension.body);
        let once = |cost: u64| CostEstimate::fixed(cost);
        // Adding to the accumulator, and passing it on when the filter says no.
        let filtered = |step: CostEstimate| match filter {
            Some(filter) => filter.plus(step.union(ONE)),
            None => step,
        };
        let per_item = match comprehension.kind {
            ComprehensionKind::All => {
                once(2).plus(CostEstimate { min: 1, max: body.cost.max.saturating_add(1) })
            }
            ComprehensionKind::Exists => {
                once(3).plus(CostEstimate { min: 1, max: body.cost.max.saturating_add(1) })
            }
            ComprehensionKind::ExistsOne => body.cost.plus(CostEstimate { min: 1, max: 2 }),
            ComprehensionKind::Map | ComprehensionKind::SortBy => {
                filtered(once(2 + NEW_LIST).plus(body.cost))
            }
            ComprehensionKind::Filter => body.cost.plus(CostEstimate { min: 1, max: 3 + NEW_LIST }),
            ComprehensionKind::TransformMap => filtered(once(3).plus(body.cost)),
            ComprehensionKind::TransformMapEntry => filtered(once(2).plus(body.cost)),
        };
        let (before, after) = match comprehension.kind {
            ComprehensionKind::All | ComprehensionKind::Exists => (0, 1),
            ComprehensionKind::ExistsOne => (0, 2),
            ComprehensionKind::Map | ComprehensionKind::Filter => (NEW_LIST, 1),
            // A binding of the list, two uses of it, and the list of keys.
            ComprehensionKind::SortBy => (2 * NEW_LIST + 2, 1),
            ComprehensionKind::TransformMap | ComprehensionKind::TransformMapEntry => (NEW_MAP, 1),
        };
        let mut cost = range.cost.plus(once(before + after)).plus(count.times(per_item));
        let (mut size, entries) = match comprehension.kind {
            ComprehensionKind::All | ComprehensionKind::Exists | ComprehensionKind::ExistsOne => {
                (Some(SizeEstimate::fixed(1)), None)
            }
            ComprehensionKind::Map => {
                (Some(count), body.size.map(|value| Entries { key: SizeEstimate::fixed(1), value }))
            }
            ComprehensionKind::Filter => (Some(count), range.entries),
            _ => (Some(count), None),
        };
        if comprehension.kind == ComprehensionKind::SortBy {
            let text = matches!(self.checked.type_of(&comprehension.body), Type::String | Type::Bytes);
            let keys = Argument { ty: &Type::Dyn, size: Some(count), schema: None, literal: None };
            let (compared, sorted) = Rule::SelfCompare { text }.estimate(&[keys]);
            (cost, size) = (cost.plus(compared), sorted);
        }
        NodeEstimate { cost, size, entries, origin: Origin::Computed }
    }

    /// Tells the variables of a macro what they run over.
    fn enter_iteration(&mut self, expr: &Expr, comprehension: &Comprehension, range: &NodeEstimate) {
        let Reference::Slots(first, second) = self.checked.reference(expr.id) else { return };
        let is_list = !matches!(self.checked.type_of(&comprehension.range), Type::Map(..));
        let element = match &range.origin {
            Origin::Schema(schema) => schema.elements().cloned().map_or(Origin::Computed, Origin::Schema),
            Origin::Sized(sizes) => Origin::sized(sizes.values()),
            Origin::MapKey => Origin::Computed,
            Origin::Computed => self.root(),
        };
        let key_place = match (&range.origin, is_list) {
            (Origin::Computed, _) => self.root(),
            (Origin::Schema(_), false) => Origin::MapKey,
            (Origin::Sized(sizes), false) => Origin::sized(sizes.keys()),
            _ => Origin::Computed,
        };
        let value = NodeEstimate {
            size: range.entries.map(|entries| entries.value),
            origin: element,
            ..NodeEstimate::of(ONE)
        };
        let key = NodeEstimate {
            size: range.entries.map(|entries| entries.key),
            origin: key_place,
            ..NodeEstimate::of(ONE)
        };
        if comprehension.var2.is_some() {
            self.locals[*first] = Some(key);
            self.locals[*second] = Some(value);
        } else {
            self.locals[*first] = Some(if is_list { value } else { key });
        }
    }

    fn bind(&mut self, expr: &Expr, bind: &Bind) -> NodeEstimate {
        let value = self.node(&bind.value);
        let cost = value.cost.plus(CostEstimate::fixed(NEW_LIST));
        self.enter_local(expr, value);
        let body = self.node(&bind.body);
        NodeEstimate { cost: cost.plus(body.cost), origin: Origin::Computed, ..body }
    }

    /// `target.hasValue() ? optional.of(body) : optional.none()`, where the body's variable is `target.value()`.
    fn opt_map(&mut self, expr: &Expr, opt_map: &OptMap) -> NodeEstimate {
        let target = self.node(&opt_map.target);
        let target_cost = target.cost;
        self.enter_local(expr, NodeEstimate::of(ONE));
        let body = self.node(&opt_map.body);
        let wrap = if opt_map.flat { CostEstimate::ZERO } else { ONE };
        let present = target_cost.plus(ONE).plus(CostEstimate::fixed(NEW_LIST)).plus(body.cost).plus(wrap);
        let cost = target_cost.plus(ONE).plus(present.union(ONE));
        NodeEstimate { size: body.size, ..NodeEstimate::of(cost) }
    }

    fn enter_local(&mut self, expr: &Expr, estimate: NodeEstimate) {
        if let Reference::Slots(slot, _) = self.checked.reference(expr.id) {
            self.locals[*slot] = Some(estimate);
        }
    }
}

fn logical(terms: &[NodeEstimate]) -> NodeEstimate {
    let min = terms.first().map_or(0, |first| first.cost.min);
    let cost = CostEstimate { min, max: sum(terms.iter()).max };
    NodeEstimate { size: Some(SizeEstimate::fixed(1)), ..NodeEstimate::of(cost) }
}

fn conditional(operands: &[NodeEstimate]) -> NodeEstimate {
    let [condition, yes, no] = operands else { return NodeEstimate::of(CostEstimate::ZERO) };
    NodeEstimate {
        cost: condition.cost.plus(yes.cost.union(no.cost)),
        size: Some(yes.size().union(no.size())),
        entries: union_entries(yes.entries, no.entries),
        origin: Origin::Computed,
    }
}

fn union_entries(one: Option<Entries>, other: Option<Entries>) -> Option<Entries> {
    let (one, other) = (one?, other?);
    Some(Entries { key: one.key.union(other.key), value: one.value.union(other.value) })
}

fn sum<'k>(parts: impl Iterator<Item = &'k NodeEstimate>) -> CostEstimate {
    parts.fold(CostEstimate::ZERO, |sum, part| sum.plus(part.cost))
}

/// The sizes that any of the parts can have; zero if there are none.
fn union_of<'k>(parts: impl Iterator<Item = &'k NodeEstimate>) -> SizeEstimate {
    parts.map(NodeEstimate::size).reduce(SizeEstimate::union).unwrap_or(SizeEstimate::ZERO)
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::String(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    }
}
