//! The static estimate: what an expression can cost on data that fits the schemas.
//!
//! The tree is walked once. Every node yields its cost and what is known of its value's size: from the literal
//! itself, from the schema it was read through, from the type (scalars have size one), or from the sizes of what it
//! was computed from. A macro over a range costs its body as many times as the range can be long; how the parts of
//! each macro add up follows the comprehension that the reference expands it to.

use super::rules::{Argument, Rule};
use super::{CostRange, NEW_LIST, NEW_MAP, NEW_MESSAGE, SizeRange};
use crate::ast::{Bind, Call, Expr, ExprKind, Fold, FoldKind, Literal, OptMap, Select, SelectMode, operator};
use crate::check::{Checked, Meaning};
use crate::env::Scope;
use crate::schema::Schema;
use crate::types::Type;

/// Estimates a checked expression.
pub(crate) fn estimate(scope: &Scope, checked: &Checked) -> CostRange {
    let locals = vec![None; checked.slots];
    Estimator { scope, checked, locals }.node(&checked.ast.root).cost
}

/// What is known of a node.
#[derive(Clone, Debug)]
struct Known {
    cost: CostRange,
    size: Option<SizeRange>,
    /// Sizes of keys and values, where the node is a collection made in the expression.
    entries: Option<Entries>,
    place: Place,
}

/// Sizes of the keys (or indices) and values of a collection.
#[derive(Clone, Copy, Debug)]
struct Entries {
    key: SizeRange,
    value: SizeRange,
}

/// Where in the document a value was read.
///
/// Kubernetes follows paths whose first part it never looks at. So a type's name, a part of something computed, and a
/// variable that runs over it, count as large as the whole document's root, which for objects is nothing. Rules are accepted
/// or refused by these numbers, so they are kept.
#[derive(Clone, Debug)]
enum Place {
    Nowhere,
    Schema(Schema),
    /// A key of a map of the document: counted as empty, as in Kubernetes.
    Key,
}

impl Known {
    fn of(cost: CostRange) -> Self {
        Self { cost, size: None, entries: None, place: Place::Nowhere }
    }

    fn size(&self) -> SizeRange {
        self.size.unwrap_or(SizeRange::UNKNOWN)
    }

    /// Fills in the size that the place or the type implies.
    fn sized(mut self, ty: &Type) -> Self {
        let from_place = match &self.place {
            Place::Schema(schema) => Some(SizeRange { min: 0, max: schema.max_elements() }),
            Place::Key => Some(SizeRange::ZERO),
            Place::Nowhere => None,
        };
        self.size = from_place.or(self.size).or_else(|| ty.is_scalar().then(|| SizeRange::fixed(1)));
        self
    }
}

struct Estimator<'c> {
    scope: &'c Scope,
    checked: &'c Checked,
    locals: Vec<Option<Known>>,
}

const ONE: CostRange = CostRange::fixed(1);

impl Estimator<'_> {
    fn node(&mut self, expr: &Expr) -> Known {
        match &expr.kind {
            ExprKind::Literal(literal) => {
                Known { size: Some(SizeRange::fixed(literal_size(literal))), ..Known::of(CostRange::ZERO) }
            }
            ExprKind::Ident(_) => self.name(expr),
            ExprKind::Select(select) => self.select(expr, select),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(elements) => {
                let items: Vec<Known> = elements.iter().map(|element| self.node(&element.value)).collect();
                let entries = Entries { key: SizeRange::fixed(1), value: union_of(items.iter()) };
                let cost = sum(items.iter()).plus(CostRange::fixed(NEW_LIST));
                let size = Some(SizeRange::fixed(items.len() as u64));
                Known { cost, size, entries: Some(entries), place: Place::Nowhere }
            }
            ExprKind::Map(map) => {
                let keys: Vec<Known> = map.iter().map(|entry| self.node(&entry.key)).collect();
                let values: Vec<Known> = map.iter().map(|entry| self.node(&entry.value)).collect();
                let entries = Entries { key: union_of(keys.iter()), value: union_of(values.iter()) };
                let cost = sum(keys.iter().chain(&values)).plus(CostRange::fixed(NEW_MAP));
                let size = Some(SizeRange::fixed(keys.len() as u64));
                Known { cost, size, entries: Some(entries), place: Place::Nowhere }
            }
            ExprKind::Message(message) => {
                let values: Vec<Known> = message.fields.iter().map(|init| self.node(&init.value)).collect();
                Known::of(sum(values.iter()).plus(CostRange::fixed(NEW_MESSAGE)))
            }
            ExprKind::Fold(fold) => self.fold(expr, fold),
            ExprKind::Bind(bind) => self.bind(expr, bind),
            ExprKind::OptMap(opt_map) => self.opt_map(expr, opt_map),
        }
    }

    fn name(&self, expr: &Expr) -> Known {
        let ty = self.checked.type_of(expr);
        match self.checked.meaning(expr.id) {
            Meaning::Local(slot) => match self.locals.get(*slot) {
                Some(Some(known)) => Known { cost: ONE, ..known.clone() }.sized(ty),
                _ => Known::of(ONE).sized(ty),
            },
            Meaning::Variable(index) => {
                let schema = self.scope.variables.get(*index).and_then(|variable| variable.schema.clone());
                let place = schema.map_or(Place::Nowhere, Place::Schema);
                Known { place, ..Known::of(ONE) }.sized(ty)
            }
            Meaning::TypeName(_) => Known { place: self.root(), ..Known::of(ONE) }.sized(ty),
            _ => Known::of(ONE),
        }
    }

    /// The place of the document itself.
    fn root(&self) -> Place {
        let schema = self.scope.variables.iter().find_map(|variable| variable.schema.clone());
        schema.map_or(Place::Nowhere, Place::Schema)
    }

    fn select(&mut self, expr: &Expr, select: &Select) -> Known {
        if matches!(self.checked.meaning(expr.id), Meaning::Variable(_) | Meaning::TypeName(_)) {
            return self.name(expr);
        }
        let operand = self.node(&select.operand);
        let ty = self.checked.type_of(expr);
        match select.mode {
            // has() itself is free.
            SelectMode::Presence => return Known::of(operand.cost).sized(ty),
            SelectMode::Optional => return Known::of(operand.cost.plus(ONE)).sized(ty),
            SelectMode::Value => {}
        }
        let priced = matches!(
            self.checked.type_of(&select.operand),
            Type::Map(..) | Type::Object(_) | Type::Message(_) | Type::Param(_)
        );
        let place = match &operand.place {
            Place::Schema(schema) => {
                schema.field(&select.field).cloned().map_or(Place::Nowhere, Place::Schema)
            }
            Place::Nowhere => self.root(),
            Place::Key => Place::Nowhere,
        };
        let cost = if priced { operand.cost.plus(ONE) } else { operand.cost };
        Known { place, ..Known::of(cost) }.sized(ty)
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Known {
        let Meaning::Call { function, overloads, static_target } = self.checked.meaning(expr.id).clone()
        else {
            return Known::of(CostRange::ZERO);
        };
        let target = call.target.as_deref().filter(|_| !static_target);
        let operands: Vec<&Expr> = target.into_iter().chain(&call.args).collect();
        let known: Vec<Known> = operands.iter().map(|operand| self.node(operand)).collect();
        match function.name.as_str() {
            operator::AND | operator::OR => return logical(&known),
            operator::CONDITIONAL => return conditional(&known),
            "dyn" => {
                let argument = known.into_iter().next().unwrap_or_else(|| Known::of(CostRange::ZERO));
                return Known { cost: argument.cost.plus(ONE), place: Place::Nowhere, ..argument };
            }
            _ => {}
        }
        let arguments: Vec<Argument<'_>> = operands
            .iter()
            .zip(&known)
            .map(|(operand, known)| Argument {
                ty: self.checked.type_of(operand),
                size: known.size,
                schema: match &known.place {
                    Place::Schema(schema) => Some(schema),
                    _ => None,
                },
                literal: match &operand.kind {
                    ExprKind::Literal(Literal::Int(value)) => Some(*value),
                    _ => None,
                },
            })
            .collect();
        let mut cost: Option<CostRange> = None;
        let mut size: Option<SizeRange> = None;
        for overload in overloads.iter().filter_map(|index| function.overloads.get(*index)) {
            let (one, result) = Rule::of(&function.name, &overload.id).estimate(&arguments);
            cost = Some(cost.map_or(one, |cost| cost.union(one)));
            size = match (size, result) {
                (Some(size), Some(result)) => Some(size.union(result)),
                (size, result) => size.or(result),
            };
        }
        let cost = sum(known.iter()).plus(cost.unwrap_or(CostRange::ZERO));
        let result = Known { cost, size, entries: None, place: Place::Nowhere };
        let optional = operands.first().is_some_and(|first| self.checked.type_of(first).is_optional());
        let result = self.indexed(&function.name, &known, optional, result);
        // What is known of the elements themselves comes before what their place implies.
        let element =
            known.first().filter(|_| function.name == operator::INDEX).and_then(|list| list.entries);
        let result = result.sized(self.checked.type_of(expr));
        Known { size: element.map(|entries| entries.value).or(result.size), ..result }
    }

    /// What indexing and concatenation keep of their operands.
    fn indexed(&self, function: &str, operands: &[Known], optional: bool, mut result: Known) -> Known {
        match (function, operands) {
            (operator::INDEX, [container, _]) => {
                result.place = match &container.place {
                    Place::Schema(schema) => schema.elements().cloned().map_or(Place::Nowhere, Place::Schema),
                    Place::Nowhere if !optional => self.root(),
                    Place::Nowhere | Place::Key => Place::Nowhere,
                };
            }
            (operator::ADD, [one, other]) => result.entries = union_entries(one.entries, other.entries),
            _ => {}
        }
        result
    }

    fn fold(&mut self, expr: &Expr, fold: &Fold) -> Known {
        let range = self.node(&fold.range);
        let count = range.size();
        self.enter_iteration(expr, fold, &range);
        let filter = fold.filter.as_ref().map(|filter| self.node(filter).cost);
        let body = self.node(&fold.body);
        let once = |cost: u64| CostRange::fixed(cost);
        // Adding to the accumulator, and passing it on when the filter says no.
        let filtered = |step: CostRange| match filter {
            Some(filter) => filter.plus(step.union(ONE)),
            None => step,
        };
        let per_item = match fold.kind {
            FoldKind::All => once(2).plus(CostRange { min: 1, max: body.cost.max.saturating_add(1) }),
            FoldKind::Exists => once(3).plus(CostRange { min: 1, max: body.cost.max.saturating_add(1) }),
            FoldKind::ExistsOne => body.cost.plus(CostRange { min: 1, max: 2 }),
            FoldKind::Map | FoldKind::SortBy => filtered(once(2 + NEW_LIST).plus(body.cost)),
            FoldKind::Filter => body.cost.plus(CostRange { min: 1, max: 3 + NEW_LIST }),
            FoldKind::TransformMap => filtered(once(3).plus(body.cost)),
            FoldKind::TransformMapEntry => filtered(once(2).plus(body.cost)),
        };
        let (before, after) = match fold.kind {
            FoldKind::All | FoldKind::Exists => (0, 1),
            FoldKind::ExistsOne => (0, 2),
            FoldKind::Map | FoldKind::Filter => (NEW_LIST, 1),
            // A binding of the list, two uses of it, and the list of keys.
            FoldKind::SortBy => (2 * NEW_LIST + 2, 1),
            FoldKind::TransformMap | FoldKind::TransformMapEntry => (NEW_MAP, 1),
        };
        let mut cost = range.cost.plus(once(before + after)).plus(count.times(per_item));
        let (mut size, entries) = match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => (Some(SizeRange::fixed(1)), None),
            FoldKind::Map => {
                (Some(count), body.size.map(|value| Entries { key: SizeRange::fixed(1), value }))
            }
            FoldKind::Filter => (Some(count), range.entries),
            _ => (Some(count), None),
        };
        if fold.kind == FoldKind::SortBy {
            let text = matches!(self.checked.type_of(&fold.body), Type::String | Type::Bytes);
            let keys = Argument { ty: &Type::Dyn, size: Some(count), schema: None, literal: None };
            let (compared, sorted) = Rule::SelfCompare { text }.estimate(&[keys]);
            (cost, size) = (cost.plus(compared), sorted);
        }
        Known { cost, size, entries, place: Place::Nowhere }
    }

    /// Tells the variables of a macro what they run over.
    fn enter_iteration(&mut self, expr: &Expr, fold: &Fold, range: &Known) {
        let Meaning::Slots(first, second) = self.checked.meaning(expr.id) else { return };
        let is_list = !matches!(self.checked.type_of(&fold.range), Type::Map(..));
        let element = match &range.place {
            Place::Schema(schema) => schema.elements().cloned().map_or(Place::Nowhere, Place::Schema),
            Place::Key => Place::Nowhere,
            Place::Nowhere => self.root(),
        };
        let key_place = match (&range.place, is_list) {
            (Place::Nowhere, _) => self.root(),
            (Place::Schema(_), false) => Place::Key,
            _ => Place::Nowhere,
        };
        let value =
            Known { size: range.entries.map(|entries| entries.value), place: element, ..Known::of(ONE) };
        let key =
            Known { size: range.entries.map(|entries| entries.key), place: key_place, ..Known::of(ONE) };
        if fold.var2.is_some() {
            self.locals[*first] = Some(key);
            self.locals[*second] = Some(value);
        } else {
            self.locals[*first] = Some(if is_list { value } else { key });
        }
    }

    fn bind(&mut self, expr: &Expr, bind: &Bind) -> Known {
        let value = self.node(&bind.value);
        let cost = value.cost.plus(CostRange::fixed(NEW_LIST));
        self.enter_local(expr, value);
        let body = self.node(&bind.body);
        Known { cost: cost.plus(body.cost), place: Place::Nowhere, ..body }
    }

    /// `target.hasValue() ? optional.of(body) : optional.none()`, where the body's variable is `target.value()`.
    fn opt_map(&mut self, expr: &Expr, opt_map: &OptMap) -> Known {
        let target = self.node(&opt_map.target);
        let target_cost = target.cost;
        self.enter_local(expr, Known::of(ONE));
        let body = self.node(&opt_map.body);
        let wrap = if opt_map.flat { CostRange::ZERO } else { ONE };
        let present = target_cost.plus(ONE).plus(CostRange::fixed(NEW_LIST)).plus(body.cost).plus(wrap);
        let cost = target_cost.plus(ONE).plus(present.union(ONE));
        Known { size: body.size, ..Known::of(cost) }
    }

    fn enter_local(&mut self, expr: &Expr, known: Known) {
        if let Meaning::Slots(slot, _) = self.checked.meaning(expr.id) {
            self.locals[*slot] = Some(known);
        }
    }
}

fn logical(terms: &[Known]) -> Known {
    let min = terms.first().map_or(0, |first| first.cost.min);
    let cost = CostRange { min, max: sum(terms.iter()).max };
    Known { size: Some(SizeRange::fixed(1)), ..Known::of(cost) }
}

fn conditional(operands: &[Known]) -> Known {
    let [condition, yes, no] = operands else { return Known::of(CostRange::ZERO) };
    Known {
        cost: condition.cost.plus(yes.cost.union(no.cost)),
        size: Some(yes.size().union(no.size())),
        entries: union_entries(yes.entries, no.entries),
        place: Place::Nowhere,
    }
}

fn union_entries(one: Option<Entries>, other: Option<Entries>) -> Option<Entries> {
    let (one, other) = (one?, other?);
    Some(Entries { key: one.key.union(other.key), value: one.value.union(other.value) })
}

fn sum<'k>(parts: impl Iterator<Item = &'k Known>) -> CostRange {
    parts.fold(CostRange::ZERO, |sum, part| sum.plus(part.cost))
}

/// The sizes that any of the parts can have; zero if there are none.
fn union_of<'k>(parts: impl Iterator<Item = &'k Known>) -> SizeRange {
    parts.map(Known::size).reduce(SizeRange::union).unwrap_or(SizeRange::ZERO)
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::String(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    }
}
