//! The planner: resolves names to slots and overloads to functions, and folds constants.
//!
//! Three things are done ahead of time, as cel-go does when it optimizes, and are therefore free at run time:
//! lists and maps of constants, type conversions of constants, and membership tests in lists of constants. Regular
//! expressions that are constants are compiled here; one that is not valid is a compile error.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_regex::Regex;

use crate::ast::{
    Bind, Call, Comprehension, ComprehensionKind, Entry, Expr, ExprKind, Literal, Message, OptMap, Select,
    SelectMode, operator,
};
use crate::checker::{Checked, Reference};
use crate::cost::rules::Rule;
use crate::error::CompileErrors;
use crate::functions::{CallContext, Implementation};
use crate::library::regex::compile;
use crate::schema::Schema;
use crate::types::{MessageType, Type};
use crate::value::{Key, Text, Value};

/// One step of an evaluation.
#[derive(Debug)]
pub(crate) enum Node {
    Constant(Value<'static>),
    Variable(usize),
    Local(usize),
    Field(Box<FieldNode>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Conditional(Box<ConditionalNode>),
    Binary(Box<BinaryNode>),
    /// A membership test in a list of constants.
    InConstants(Box<Node>, Value<'static>),
    Index(Box<IndexNode>),
    /// `a.or(b)` and `a.orValue(b)`: the second is evaluated only where the first has no value.
    OptionalOr(Box<OptionalOrNode>),
    Call(Box<CallNode>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Message(Box<MessageNode>),
    Comprehension(Box<ComprehensionNode>),
    Bind(Box<BindNode>),
    OptMap(Box<OptMapNode>),
}

#[derive(Debug)]
pub(crate) struct FieldNode {
    pub(crate) operand: Node,
    pub(crate) name: String,
    pub(crate) mode: SelectMode,
    /// The field's name in JSON and its schema, where the operand is an object.
    pub(crate) declared: Option<(String, Schema)>,
}

#[derive(Debug)]
pub(crate) struct ConditionalNode {
    pub(crate) condition: Node,
    pub(crate) yes: Node,
    pub(crate) no: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equals,
    NotEquals,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    In,
}

#[derive(Debug)]
pub(crate) struct BinaryNode {
    pub(crate) operator: BinaryOperator,
    pub(crate) left: Node,
    pub(crate) right: Node,
}

#[derive(Debug)]
pub(crate) struct IndexNode {
    pub(crate) operand: Node,
    pub(crate) index: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct OptionalOrNode {
    pub(crate) first: Node,
    pub(crate) second: Node,
    /// `orValue`: the result is a value, not an optional.
    pub(crate) unwrap: bool,
}

#[derive(Debug)]
pub(crate) struct CallNode {
    pub(crate) function: String,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) args: Vec<Node>,
    pub(crate) regex: Option<Regex>,
}

/// An overload that the arguments may turn out to fit.
#[derive(Debug)]
pub(crate) struct Candidate {
    pub(crate) params: Vec<Type>,
    pub(crate) implementation: Implementation,
    pub(crate) rule: Rule,
}

#[derive(Debug)]
pub(crate) struct MessageNode {
    pub(crate) message: Arc<MessageType>,
    pub(crate) fields: Vec<(String, Node, bool)>,
}

#[derive(Debug)]
pub(crate) struct ComprehensionNode {
    pub(crate) kind: ComprehensionKind,
    pub(crate) range: Node,
    pub(crate) slot: usize,
    /// The slot of the second variable.
    pub(crate) slot2: Option<usize>,
    pub(crate) filter: Option<Node>,
    pub(crate) body: Node,
}

#[derive(Debug)]
pub(crate) struct BindNode {
    pub(crate) slot: usize,
    pub(crate) value: Node,
    pub(crate) body: Node,
}

#[derive(Debug)]
pub(crate) struct OptMapNode {
    pub(crate) target: Node,
    pub(crate) slot: usize,
    pub(crate) body: Node,
    pub(crate) flat: bool,
}

impl Node {
    /// Variables and what is reached from them by fields and indices.
    pub(crate) fn is_attribute(&self) -> bool {
        match self {
            Self::Variable(_) | Self::Local(_) => true,
            Self::Field(field) => field.mode == SelectMode::Value && field.operand.is_attribute(),
            Self::Index(index) => !index.optional && index.operand.is_attribute(),
            _ => false,
        }
    }

    /// Returns whether selecting from this node starts a new attribute, which costs one: the node is neither a variable,
    /// nor a selection, nor a conditional.
    pub(crate) fn is_computed(&self) -> bool {
        !matches!(
            self,
            Self::Variable(_) | Self::Local(_) | Self::Field(_) | Self::Index(_) | Self::Conditional(_)
        )
    }

    fn constant(&self) -> Option<&Value<'static>> {
        match self {
            Self::Constant(value) => Some(value),
            _ => None,
        }
    }
}

/// Plans a checked expression.
pub(crate) fn plan(checked: &Checked) -> Result<Node, CompileErrors> {
    let mut planner = Planner { checked, errors: CompileErrors::new(checked.source.clone()) };
    let root = planner.node(&checked.ast.root);
    planner.errors.into_result(root)
}

struct Planner<'c> {
    checked: &'c Checked,
    errors: CompileErrors,
}

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Node {
        match &expr.kind {
            ExprKind::Literal(literal) => Node::Constant(literal_value(literal)),
            ExprKind::Ident(_) => self.name(expr),
            ExprKind::Select(select) => self.select(expr, select),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List(elements) => {
                let nodes = elements.iter().map(|element| (self.node(&element.value), element.optional));
                constant_list(nodes.collect())
            }
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Message(message) => self.message(expr, message),
            ExprKind::Comprehension(comprehension) => self.comprehension(expr, comprehension),
            ExprKind::Bind(bind) => self.bind(expr, bind),
            ExprKind::OptMap(opt_map) => self.opt_map(expr, opt_map),
        }
    }

    fn name(&mut self, expr: &Expr) -> Node {
        match self.checked.reference(expr.id) {
            Reference::Variable(index) => Node::Variable(*index),
            Reference::Local(slot) => Node::Local(*slot),
            Reference::TypeName(ty) => Node::Constant(Value::Type(ty.clone())),
            _ => self.impossible(expr),
        }
    }

    /// A node the checker should have refused; reported rather than trusted.
    fn impossible(&mut self, expr: &Expr) -> Node {
        self.errors.report(self.checked.ast.position(expr.id), "internal error: expression was not resolved");
        Node::Constant(Value::Null)
    }

    fn select(&mut self, expr: &Expr, select: &Select) -> Node {
        if matches!(self.checked.reference(expr.id), Reference::Variable(_) | Reference::TypeName(_)) {
            return self.name(expr);
        }
        let declared = match self.checked.type_of(&select.operand) {
            Type::Object(schema) => {
                schema.field_entry(&select.field).map(|field| (field.json_name.clone(), field.schema.clone()))
            }
            _ => None,
        };
        let operand = self.node(&select.operand);
        Node::Field(Box::new(FieldNode { operand, name: select.field.clone(), mode: select.mode, declared }))
    }

    fn call(&mut self, expr: &Expr, call: &Call) -> Node {
        let Reference::Call { function, overloads, static_target } = self.checked.reference(expr.id).clone()
        else {
            return self.impossible(expr);
        };
        let target = call.target.as_deref().filter(|_| !static_target);
        let operands: Vec<&Expr> = target.into_iter().chain(&call.args).collect();
        let args: Vec<Node> = operands.iter().map(|operand| self.node(operand)).collect();
        let args = match operator_node(&function.name, args) {
            Ok(node) => return node,
            Err(args) => args,
        };
        let candidates = overloads.iter().filter_map(|index| function.overloads.get(*index));
        let candidates: Vec<Candidate> = candidates
            .map(|overload| Candidate {
                params: overload.params.clone(),
                implementation: overload.implementation.clone(),
                rule: Rule::of(&function.name, &overload.id),
            })
            .collect();
        if let Some(folded) = fold_conversion(&function.name, &candidates, &args) {
            return Node::Constant(folded);
        }
        let regex = match (function.name.as_str(), args.get(1).and_then(Node::constant)) {
            ("matches" | "find" | "findAll", Some(Value::String(pattern))) => match compile(pattern) {
                Ok(regex) => Some(regex),
                Err(message) => {
                    let place = operands.get(1).map_or(expr.id, |pattern| pattern.id);
                    self.errors.report(self.checked.ast.position(place), message);
                    None
                }
            },
            _ => None,
        };
        Node::Call(Box::new(CallNode { function: function.name.clone(), candidates, args, regex }))
    }

    fn map(&mut self, entries: &[Entry]) -> Node {
        let nodes: Vec<(Node, Node, bool)> = entries
            .iter()
            .map(|entry| (self.node(&entry.key), self.node(&entry.value), entry.optional))
            .collect();
        constant_map(&nodes).map_or(Node::Map(nodes), Node::Constant)
    }

    fn message(&mut self, expr: &Expr, message: &Message) -> Node {
        let Reference::Message(Type::Message(declared)) = self.checked.reference(expr.id).clone() else {
            return self.impossible(expr);
        };
        let fields = message.fields.iter();
        let fields = fields.map(|init| (init.name.clone(), self.node(&init.value), init.optional)).collect();
        Node::Message(Box::new(MessageNode { message: declared, fields }))
    }

    fn comprehension(&mut self, expr: &Expr, comprehension: &Comprehension) -> Node {
        let Reference::Slots(slot, slot2) = *self.checked.reference(expr.id) else {
            return self.impossible(expr);
        };
        Node::Comprehension(Box::new(ComprehensionNode {
            kind: comprehension.kind,
            range: self.node(&comprehension.range),
            slot,
            slot2: comprehension.var2.is_some().then_some(slot2),
            filter: comprehension.filter.as_ref().map(|filter| self.node(filter)),
            body: self.node(&comprehension.body),
        }))
    }

    fn bind(&mut self, expr: &Expr, bind: &Bind) -> Node {
        let Reference::Slots(slot, _) = *self.checked.reference(expr.id) else {
            return self.impossible(expr);
        };
        Node::Bind(Box::new(BindNode { slot, value: self.node(&bind.value), body: self.node(&bind.body) }))
    }

    fn opt_map(&mut self, expr: &Expr, opt_map: &OptMap) -> Node {
        let Reference::Slots(slot, _) = *self.checked.reference(expr.id) else {
            return self.impossible(expr);
        };
        let target = self.node(&opt_map.target);
        let body = self.node(&opt_map.body);
        Node::OptMap(Box::new(OptMapNode { target, slot, body, flat: opt_map.flat }))
    }
}

/// The node of an operator; other calls get their arguments back.
fn operator_node(function: &str, args: Vec<Node>) -> Result<Node, Vec<Node>> {
    match function {
        operator::AND => return Ok(Node::And(args)),
        operator::OR => return Ok(Node::Or(args)),
        _ => {}
    }
    match (function, <[Node; 1]>::try_from(args)) {
        (operator::NOT, Ok([operand])) => Ok(Node::Not(Box::new(operand))),
        (operator::NEGATE, Ok([operand])) => Ok(Node::Negate(Box::new(operand))),
        (_, Ok(one)) => Err(one.into()),
        (operator::CONDITIONAL, Err(args)) => {
            let [condition, yes, no] = <[Node; 3]>::try_from(args)?;
            Ok(Node::Conditional(Box::new(ConditionalNode { condition, yes, no })))
        }
        (_, Err(args)) => binary_node(function, args),
    }
}

fn binary_node(function: &str, args: Vec<Node>) -> Result<Node, Vec<Node>> {
    let [left, right] = <[Node; 2]>::try_from(args)?;
    let operator = match function {
        operator::ADD => BinaryOperator::Add,
        operator::SUBTRACT => BinaryOperator::Subtract,
        operator::MULTIPLY => BinaryOperator::Multiply,
        operator::DIVIDE => BinaryOperator::Divide,
        operator::MODULO => BinaryOperator::Modulo,
        operator::EQUALS => BinaryOperator::Equals,
        operator::NOT_EQUALS => BinaryOperator::NotEquals,
        operator::LESS => BinaryOperator::Less,
        operator::LESS_EQUALS => BinaryOperator::LessEquals,
        operator::GREATER => BinaryOperator::Greater,
        operator::GREATER_EQUALS => BinaryOperator::GreaterEquals,
        operator::IN => match right {
            Node::Constant(list) if is_list_of_scalars(&list) => {
                return Ok(Node::InConstants(Box::new(left), list));
            }
            right => {
                return Ok(Node::Binary(Box::new(BinaryNode { operator: BinaryOperator::In, left, right })));
            }
        },
        operator::INDEX | operator::OPT_INDEX => {
            let optional = function == operator::OPT_INDEX;
            return Ok(Node::Index(Box::new(IndexNode { operand: left, index: right, optional })));
        }
        "or" | "orValue" => {
            let unwrap = function == "orValue";
            return Ok(Node::OptionalOr(Box::new(OptionalOrNode { first: left, second: right, unwrap })));
        }
        _ => return Err(vec![left, right]),
    };
    Ok(Node::Binary(Box::new(BinaryNode { operator, left, right })))
}

fn is_list_of_scalars(value: &Value<'_>) -> bool {
    let Value::List(list) = value else { return false };
    list.iter().all(|item| {
        matches!(
            item,
            Ok(Value::String(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Bool(_))
        )
    })
}

fn literal_value(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::from(text.as_str())),
        Literal::Bytes(bytes) => Value::bytes(bytes.as_slice()),
    }
}

fn constant_list(nodes: Vec<(Node, bool)>) -> Node {
    let constants: Option<Vec<Value<'static>>> =
        nodes.iter().map(|(node, optional)| node.constant().filter(|_| !optional).cloned()).collect();
    constants.map_or(Node::List(nodes), |values| Node::Constant(Value::list(values)))
}

fn constant_map(nodes: &[(Node, Node, bool)]) -> Option<Value<'static>> {
    let mut map = BTreeMap::new();
    for (key, value, optional) in nodes {
        let key = Key::lookup(key.constant()?).filter(|_| !optional)?;
        // Duplicate keys are an error, to be met at run time.
        if map.insert(key, value.constant()?.clone()).is_some() {
            return None;
        }
    }
    Some(Value::Map(map.into()))
}

/// Conversions of constants are constants, unless they fail.
fn fold_conversion(function: &str, candidates: &[Candidate], args: &[Node]) -> Option<Value<'static>> {
    let conversions =
        ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"];
    let ([argument], true) = (args, conversions.contains(&function)) else { return None };
    let value = argument.constant()?;
    let candidate = candidates.iter().find(|candidate| candidate.params.iter().all(|ty| value.fits(ty)))?;
    match candidate.implementation {
        Implementation::Builtin(run) => run(CallContext::default(), std::slice::from_ref(value)).ok(),
        _ => None,
    }
}
