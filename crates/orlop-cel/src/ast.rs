//! The abstract syntax tree.
//!
//! Operators are calls under the names the CEL specification gives them (`_+_`, `_[_]`, `@in`), so that one rule
//! resolves every overload. Macros are nodes of their own ([`Comprehension`], [`Bind`], [`OptMap`]) rather than the general
//! comprehension with an accumulator that other implementations expand them to: the checker, the cost estimator and
//! the evaluator then see the macro itself, and no expression is copied. Every node has an id, the index
//! of its position and (once checked) of its type.

/// Index of a node within its [`Ast`].
pub type ExprId = u32;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Ast {
    /// The outermost node.
    pub root: Expr,
    /// Character offset of each node, by id.
    pub positions: Vec<u32>,
    /// Depth of nesting as it was written.
    pub depth: u32,
}

impl Ast {
    /// Character offset of a node.
    pub fn position(&self, id: ExprId) -> u32 {
        self.positions.get(id as usize).copied().unwrap_or(0)
    }
}

/// One node.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Identity within the tree.
    pub id: ExprId,
    /// The kind of expression.
    pub kind: ExprKind,
}

/// Kind of an expression.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// `1`, `'a'`, `null`, …
    Literal(Literal),
    /// `x` or `.x`.
    Ident(String),
    /// `operand.field`, `operand.?field`, `has(operand.field)`.
    Select(Box<Select>),
    /// `f(x)`, `x.f(y)` and every operator.
    Call(Box<Call>),
    /// `[a, ?b]`.
    List(Vec<Element>),
    /// `{k: v, ?l: w}`.
    Map(Vec<Entry>),
    /// `Type{field: v, ?other: w}`.
    Message(Box<Message>),
    /// `range.all(x, …)` and its kin.
    Comprehension(Box<Comprehension>),
    /// `cel.bind(x, value, body)`.
    Bind(Box<Bind>),
    /// `o.optMap(x, body)`, `o.optFlatMap(x, body)`.
    OptMap(Box<OptMap>),
}

/// A constant in the text.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true`
    Bool(bool),
    /// `1`, `0x1`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.0`
    Double(f64),
    /// `'a'`
    String(String),
    /// `b'a'`
    Bytes(Vec<u8>),
}

/// A field selection.
#[derive(Clone, Debug)]
pub struct Select {
    /// The operand.
    pub operand: Expr,
    /// The field's name as written.
    pub field: String,
    /// The selection mode.
    pub mode: SelectMode,
}

/// Mode of a field selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectMode {
    /// `a.b`
    Value,
    /// `a.?b`
    Optional,
    /// `has(a.b)`
    Presence,
}

/// A call of a function or operator.
#[derive(Clone, Debug)]
pub struct Call {
    /// `x` in `x.f()`.
    pub target: Option<Box<Expr>>,
    /// The name, `_+_` for operators.
    pub function: String,
    /// The arguments in parentheses; `_&&_` and `_||_` take any number from two on.
    pub args: Vec<Expr>,
}

/// One element of a list literal.
#[derive(Clone, Debug)]
pub struct Element {
    /// Written with `?`: left out when it has no value.
    pub optional: bool,
    /// The element.
    pub value: Expr,
}

/// One entry of a map literal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Written with `?`: left out when it has no value.
    pub optional: bool,
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
}

/// A message literal.
#[derive(Clone, Debug)]
pub struct Message {
    /// The type's name as written.
    pub type_name: String,
    /// The fields set.
    pub fields: Vec<FieldInit>,
}

/// One field of a message literal.
#[derive(Clone, Debug)]
pub struct FieldInit {
    /// Identity, for its position.
    pub id: ExprId,
    /// Written with `?`: left out when it has no value.
    pub optional: bool,
    /// The field's name.
    pub name: String,
    /// Its value.
    pub value: Expr,
}

/// A comprehension macro over the elements of a list or the entries of a map.
#[derive(Clone, Debug)]
pub struct Comprehension {
    /// The macro.
    pub kind: ComprehensionKind,
    /// The iteration range.
    pub range: Expr,
    /// The first variable: the element or key, or with a second variable the index or key.
    pub var: String,
    /// The second variable: the element or the map's value.
    pub var2: Option<String>,
    /// `p` in `map(x, p, f)`.
    pub filter: Option<Expr>,
    /// The predicate, transformation or sort key.
    pub body: Expr,
}

/// Comprehension macros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComprehensionKind {
    /// `all`
    All,
    /// `exists`
    Exists,
    /// `exists_one`, `existsOne`
    ExistsOne,
    /// `map`, and `transformList` with two variables
    Map,
    /// `filter`
    Filter,
    /// `transformMap`
    TransformMap,
    /// `transformMapEntry`
    TransformMapEntry,
    /// `sortBy`
    SortBy,
}

/// `cel.bind(var, value, body)`.
#[derive(Clone, Debug)]
pub struct Bind {
    /// The name bound.
    pub var: String,
    /// Its value, computed when first used.
    pub value: Expr,
    /// The scope of the name.
    pub body: Expr,
}

/// `target.optMap(var, body)`.
#[derive(Clone, Debug)]
pub struct OptMap {
    /// The optional.
    pub target: Expr,
    /// The name its value gets.
    pub var: String,
    /// The mapped expression.
    pub body: Expr,
    /// `optFlatMap`: the body is an optional itself.
    pub flat: bool,
}

/// The names of operators as functions.
pub mod operator {
    /// `c ? a : b`
    pub const CONDITIONAL: &str = "_?_:_";
    /// `a && b`
    pub const AND: &str = "_&&_";
    /// `a || b`
    pub const OR: &str = "_||_";
    /// `!a`
    pub const NOT: &str = "!_";
    /// `-a`
    pub const NEGATE: &str = "-_";
    /// `a[b]`
    pub const INDEX: &str = "_[_]";
    /// `a[?b]`
    pub const OPT_INDEX: &str = "_[?_]";
    /// `a in b`
    pub const IN: &str = "@in";
    /// `a == b`
    pub const EQUALS: &str = "_==_";
    /// `a != b`
    pub const NOT_EQUALS: &str = "_!=_";
    /// `a < b`
    pub const LESS: &str = "_<_";
    /// `a <= b`
    pub const LESS_EQUALS: &str = "_<=_";
    /// `a > b`
    pub const GREATER: &str = "_>_";
    /// `a >= b`
    pub const GREATER_EQUALS: &str = "_>=_";
    /// `a + b`
    pub const ADD: &str = "_+_";
    /// `a - b`
    pub const SUBTRACT: &str = "_-_";
    /// `a * b`
    pub const MULTIPLY: &str = "_*_";
    /// `a / b`
    pub const DIVIDE: &str = "_/_";
    /// `a % b`
    pub const MODULO: &str = "_%_";
}
