"""the first schema

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from models.base import Amount, Utc

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table('api_token',
    sa.Column('id', sa.String(), nullable=False),
    sa.Column('name', sa.String(), nullable=False),
    sa.Column('secret_hash', sa.String(), nullable=False),
    sa.Column('scopes', postgresql.ARRAY(sa.String()), nullable=False),
    sa.Column('tenant_scope', sa.String(), server_default='', nullable=False),
    sa.Column('created_at', Utc(), nullable=False),
    sa.Column('expires_at', Utc(), nullable=True),
    sa.Column('revoked_at', Utc(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_api_token')),
    sa.UniqueConstraint('name', name=op.f('uq_api_token_name'))
    )
    op.create_table('applied_file',
    sa.Column('name', sa.String(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('rows', sa.BigInteger(), nullable=False),
    sa.Column('applied_at', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_applied_file'))
    )
    op.create_table('audit',
    sa.Column('seq', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('at', Utc(), nullable=False),
    sa.Column('actor', sa.String(), nullable=False),
    sa.Column('action', sa.String(), nullable=False),
    sa.Column('subject', sa.String(), nullable=False),
    sa.Column('detail', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.Column('prev_hash', sa.String(), nullable=False),
    sa.Column('hash', sa.String(), nullable=False),
    sa.PrimaryKeyConstraint('seq', name=op.f('pk_audit'))
    )
    op.create_table('breaker',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('scope', sa.String(), nullable=False),
    sa.Column('phase', sa.String(), nullable=False),
    sa.Column('epoch', sa.Integer(), nullable=False),
    sa.Column('enforced', sa.Boolean(), nullable=False),
    sa.Column('created_at', Utc(), nullable=False),
    sa.Column('since', Utc(), nullable=False),
    sa.Column('reason', sa.Text(), server_default='', nullable=False),
    sa.Column('state', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.Column('paused_until', Utc(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_breaker')),
    sa.UniqueConstraint('scope', name=op.f('uq_breaker_scope'))
    )
    op.create_table('breaker_event',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('breaker_id', sa.BigInteger(), nullable=False),
    sa.Column('epoch', sa.Integer(), nullable=False),
    sa.Column('at', Utc(), nullable=False),
    sa.Column('from_phase', sa.String(), nullable=False),
    sa.Column('to_phase', sa.String(), nullable=False),
    sa.Column('shadow', sa.Boolean(), nullable=False),
    sa.Column('actor', sa.String(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('detail', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_breaker_event')),
    sa.UniqueConstraint('breaker_id', 'epoch', name=op.f('uq_breaker_event_breaker_id_epoch'))
    )
    op.create_index(op.f('ix_breaker_event_at'), 'breaker_event', ['at'], unique=False)
    op.create_table('budget',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('scope', sa.String(), nullable=False),
    sa.Column('period', sa.String(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('zone', sa.String(), nullable=False),
    sa.Column('amount', Amount(), nullable=False),
    sa.Column('cap', Amount(), nullable=True),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('cost_basis', sa.String(), nullable=False),
    sa.Column('owner', sa.String(), server_default='', nullable=False),
    sa.Column('created_by', sa.String(), nullable=False),
    sa.Column('created_at', Utc(), nullable=False),
    sa.Column('retired_at', Utc(), nullable=True),
    sa.CheckConstraint('amount > 0', name=op.f('ck_budget_amount_positive')),
    sa.CheckConstraint('cap IS NULL OR cap > 0', name=op.f('ck_budget_cap_positive')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_budget')),
    sa.UniqueConstraint('scope', 'period', 'version', name=op.f('uq_budget_scope_period_version'))
    )
    op.create_table('cap_increase',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('scope', sa.String(), nullable=False),
    sa.Column('period', sa.String(), nullable=False),
    sa.Column('extra', Amount(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('starts_at', Utc(), nullable=False),
    sa.Column('expires_at', Utc(), nullable=False),
    sa.Column('approver', sa.String(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_cap_increase'))
    )
    op.create_table('data_fault',
    sa.Column('id', sa.String(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('source', sa.String(), nullable=False),
    sa.Column('window_start', Utc(), nullable=False),
    sa.Column('window_end', Utc(), nullable=False),
    sa.Column('detail', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.Column('noticed_at', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_data_fault'))
    )
    op.create_index(op.f('ix_data_fault_kind_window_start'), 'data_fault', ['kind', 'window_start'], unique=False)
    op.create_table('dirty_window',
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('window_start', Utc(), nullable=False),
    sa.Column('marked_at', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('cluster', 'namespace', 'model_id', 'window_start', name=op.f('pk_dirty_window'))
    )
    op.create_table('engine_day',
    sa.Column('day', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('target', sa.String(), nullable=False),
    sa.Column('engine', sa.String(), nullable=False),
    sa.Column('node', sa.String(), nullable=False),
    sa.Column('prompt_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('generation_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prompt_tokens_cached', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prompt_tokens_computed', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('requests_finished', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('steps', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('iteration_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('preemptions', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('queue_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prefill_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('decode_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('inference_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('observed_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('busy_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('saturated_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('gap_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('running_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('waiting_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_token_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_token_steps', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('samples', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('resets', sa.BigInteger(), server_default='0', nullable=False),
    sa.PrimaryKeyConstraint('day', 'cluster', 'namespace', 'model_id', 'target', 'engine', 'node', name=op.f('pk_engine_day'))
    )
    op.create_table('engine_hour',
    sa.Column('hour', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('target', sa.String(), nullable=False),
    sa.Column('engine', sa.String(), nullable=False),
    sa.Column('node', sa.String(), nullable=False),
    sa.Column('prompt_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('generation_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prompt_tokens_cached', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prompt_tokens_computed', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('requests_finished', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('steps', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('iteration_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('preemptions', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('queue_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prefill_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('decode_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('inference_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('observed_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('busy_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('saturated_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('gap_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('running_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('waiting_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_token_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_token_steps', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('samples', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('resets', sa.BigInteger(), server_default='0', nullable=False),
    sa.PrimaryKeyConstraint('hour', 'cluster', 'namespace', 'model_id', 'target', 'engine', 'node', name=op.f('pk_engine_hour'))
    )
    op.create_table('engine_minute',
    sa.Column('minute', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('target', sa.String(), nullable=False),
    sa.Column('engine', sa.String(), nullable=False),
    sa.Column('node', sa.String(), nullable=False),
    sa.Column('prompt_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('generation_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prompt_tokens_cached', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prompt_tokens_computed', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('requests_finished', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('steps', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('iteration_tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('preemptions', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('queue_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prefill_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('decode_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('inference_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('observed_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('busy_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('saturated_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('gap_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('running_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('waiting_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_token_us', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_token_steps', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('samples', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('resets', sa.BigInteger(), server_default='0', nullable=False),
    sa.PrimaryKeyConstraint('minute', 'cluster', 'namespace', 'model_id', 'target', 'engine', 'node', name=op.f('pk_engine_minute')),
    postgresql_partition_by='RANGE (minute)'
    )
    op.create_table('exemption',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('scope', sa.String(), nullable=False),
    sa.Column('owner', sa.String(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('created_at', Utc(), nullable=False),
    sa.Column('expires_at', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_exemption'))
    )
    op.create_table('guard',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('name', sa.String(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('scope', sa.String(), server_default='', nullable=False),
    sa.Column('created_at', Utc(), nullable=False),
    sa.Column('last_seen_at', Utc(), nullable=True),
    sa.Column('last_version', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_guard')),
    sa.UniqueConstraint('name', name=op.f('uq_guard_name'))
    )
    op.create_table('heartbeat',
    sa.Column('name', sa.String(), nullable=False),
    sa.Column('at', Utc(), nullable=False),
    sa.Column('detail', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.PrimaryKeyConstraint('name', name=op.f('pk_heartbeat'))
    )
    op.create_table('ledger_day',
    sa.Column('day', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('org', sa.String(), nullable=False),
    sa.Column('team', sa.String(), nullable=False),
    sa.Column('project', sa.String(), nullable=False),
    sa.Column('user_id', sa.String(), nullable=False),
    sa.Column('service_tier', sa.String(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('cost', Amount(), nullable=False),
    sa.Column('allocated', Amount(), nullable=False),
    sa.PrimaryKeyConstraint('day', 'cluster', 'namespace', 'model_id', 'org', 'team', 'project', 'user_id', 'service_tier', 'kind', 'currency', name=op.f('pk_ledger_day'))
    )
    op.create_index('ix_ledger_day_tenant', 'ledger_day', ['org', 'team', 'project', 'user_id', 'day'], unique=False)
    op.create_table('ledger_head',
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('window_start', Utc(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.PrimaryKeyConstraint('cluster', 'namespace', 'model_id', 'window_start', name=op.f('pk_ledger_head'))
    )
    op.create_table('ledger_kind_day',
    sa.Column('day', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('token_kind', sa.String(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('lines', sa.BigInteger(), nullable=False),
    sa.Column('tokens', sa.BigInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), nullable=False),
    sa.Column('cost', Amount(), nullable=False),
    sa.Column('allocated', Amount(), nullable=False),
    sa.PrimaryKeyConstraint('day', 'cluster', 'namespace', 'model_id', 'kind', 'token_kind', 'currency', name=op.f('pk_ledger_kind_day'))
    )
    op.create_table('ledger_kind_hour',
    sa.Column('hour', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('token_kind', sa.String(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('lines', sa.BigInteger(), nullable=False),
    sa.Column('tokens', sa.BigInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), nullable=False),
    sa.Column('cost', Amount(), nullable=False),
    sa.Column('allocated', Amount(), nullable=False),
    sa.PrimaryKeyConstraint('hour', 'cluster', 'namespace', 'model_id', 'kind', 'token_kind', 'currency', name=op.f('pk_ledger_kind_hour'))
    )
    op.create_table('ledger_line',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('window_start', Utc(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('token_kind', sa.String(), server_default='', nullable=False),
    sa.Column('org', sa.String(), server_default='', nullable=False),
    sa.Column('team', sa.String(), server_default='', nullable=False),
    sa.Column('project', sa.String(), server_default='', nullable=False),
    sa.Column('user_id', sa.String(), server_default='', nullable=False),
    sa.Column('key_id', sa.String(), server_default='', nullable=False),
    sa.Column('service_tier', sa.String(), server_default='', nullable=False),
    sa.Column('workload_class', sa.SmallInteger(), server_default='0', nullable=False),
    sa.Column('tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('requests', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('cost', Amount(), nullable=False),
    sa.Column('allocated', Amount(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_ledger_line'))
    )
    op.create_index('ix_ledger_line_tenant', 'ledger_line', ['org', 'team', 'project', 'user_id', 'window_start'], unique=False)
    op.create_index('ix_ledger_line_window', 'ledger_line', ['window_start', 'cluster', 'namespace', 'model_id', 'version'], unique=False)
    op.create_table('ledger_line_day',
    sa.Column('day', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('org', sa.String(), nullable=False),
    sa.Column('team', sa.String(), nullable=False),
    sa.Column('project', sa.String(), nullable=False),
    sa.Column('user_id', sa.String(), nullable=False),
    sa.Column('key_id', sa.String(), nullable=False),
    sa.Column('service_tier', sa.String(), nullable=False),
    sa.Column('workload_class', sa.SmallInteger(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('token_kind', sa.String(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('lines', sa.BigInteger(), nullable=False),
    sa.Column('tokens', sa.BigInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), nullable=False),
    sa.Column('cost', Amount(), nullable=False),
    sa.Column('allocated', Amount(), nullable=False),
    sa.PrimaryKeyConstraint('day', 'cluster', 'namespace', 'model_id', 'org', 'team', 'project', 'user_id', 'key_id', 'service_tier', 'workload_class', 'kind', 'token_kind', 'currency', name=op.f('pk_ledger_line_day'))
    )
    op.create_table('ledger_line_month',
    sa.Column('month', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('org', sa.String(), nullable=False),
    sa.Column('team', sa.String(), nullable=False),
    sa.Column('project', sa.String(), nullable=False),
    sa.Column('user_id', sa.String(), nullable=False),
    sa.Column('key_id', sa.String(), nullable=False),
    sa.Column('service_tier', sa.String(), nullable=False),
    sa.Column('workload_class', sa.SmallInteger(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('token_kind', sa.String(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('lines', sa.BigInteger(), nullable=False),
    sa.Column('tokens', sa.BigInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), nullable=False),
    sa.Column('cost', Amount(), nullable=False),
    sa.Column('allocated', Amount(), nullable=False),
    sa.PrimaryKeyConstraint('month', 'cluster', 'namespace', 'model_id', 'org', 'team', 'project', 'user_id', 'key_id', 'service_tier', 'workload_class', 'kind', 'token_kind', 'currency', name=op.f('pk_ledger_line_month'))
    )
    op.create_table('ledger_window',
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('window_start', Utc(), nullable=False),
    sa.Column('version', sa.Integer(), nullable=False),
    sa.Column('state', sa.String(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('capacity_cost', Amount(), nullable=True),
    sa.Column('used_cost', Amount(), nullable=True),
    sa.Column('utilisation_ppm', sa.Integer(), nullable=True),
    sa.Column('utilisation_source', sa.String(), nullable=False),
    sa.Column('weight_source', sa.String(), nullable=False),
    sa.Column('price_source', sa.String(), nullable=False),
    sa.Column('engine_prompt_tokens', sa.BigInteger(), nullable=True),
    sa.Column('engine_generation_tokens', sa.BigInteger(), nullable=True),
    sa.Column('gateway_input_tokens', sa.BigInteger(), nullable=False),
    sa.Column('gateway_output_tokens', sa.BigInteger(), nullable=False),
    sa.Column('detail', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.Column('closed_at', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('cluster', 'namespace', 'model_id', 'window_start', 'version', name=op.f('pk_ledger_window'))
    )
    op.create_index('ix_ledger_window_start', 'ledger_window', ['window_start'], unique=False)
    op.create_index('ix_ledger_window_unpriced', 'ledger_window', ['window_start'], unique=False, postgresql_where=sa.text('capacity_cost IS NULL'))
    op.create_table('ledger_window_day',
    sa.Column('day', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('price_source', sa.String(), nullable=False),
    sa.Column('utilisation_source', sa.String(), nullable=False),
    sa.Column('weight_source', sa.String(), nullable=False),
    sa.Column('state', sa.String(), nullable=False),
    sa.Column('windows', sa.BigInteger(), nullable=False),
    sa.Column('engine_in', sa.BigInteger(), nullable=False),
    sa.Column('engine_out', sa.BigInteger(), nullable=False),
    sa.Column('gateway_in', sa.BigInteger(), nullable=False),
    sa.Column('gateway_out', sa.BigInteger(), nullable=False),
    sa.Column('last', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('day', 'cluster', 'namespace', 'model_id', 'currency', 'price_source', 'utilisation_source', 'weight_source', 'state', name=op.f('pk_ledger_window_day'))
    )
    op.create_table('node_service',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('target', sa.String(), nullable=False),
    sa.Column('node', sa.String(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('gpu_type', sa.String(), nullable=False),
    sa.Column('gpu_count', sa.Integer(), nullable=False),
    sa.Column('source', sa.String(), nullable=False),
    sa.Column('in_service_from', Utc(), nullable=False),
    sa.Column('in_service_to', Utc(), nullable=True),
    sa.CheckConstraint('gpu_count > 0', name=op.f('ck_node_service_gpu_count_positive')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_node_service'))
    )
    op.create_table('outbox',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('key', sa.String(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('payload', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.Column('state', sa.String(), nullable=False),
    sa.Column('attempts', sa.Integer(), server_default='0', nullable=False),
    sa.Column('next_at', Utc(), nullable=False),
    sa.Column('last_error', sa.Text(), server_default='', nullable=False),
    sa.Column('created_at', Utc(), nullable=False),
    sa.Column('done_at', Utc(), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_outbox')),
    sa.UniqueConstraint('key', name=op.f('uq_outbox_key'))
    )
    op.create_index(op.f('ix_outbox_state_next_at'), 'outbox', ['state', 'next_at'], unique=False)
    op.create_table('policy_version',
    sa.Column('version', sa.BigInteger(), nullable=False),
    sa.Column('issued_at', Utc(), nullable=False),
    sa.Column('expires_at', Utc(), nullable=False),
    sa.Column('entries', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.Column('digest', sa.String(), nullable=False),
    sa.PrimaryKeyConstraint('version', name=op.f('pk_policy_version'))
    )
    op.create_table('quarantine',
    sa.Column('id', sa.String(), nullable=False),
    sa.Column('received_at', Utc(), nullable=False),
    sa.Column('source', sa.String(), nullable=False),
    sa.Column('place', sa.String(), server_default='', nullable=False),
    sa.Column('field', sa.String(), server_default='', nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('body', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_quarantine'))
    )
    op.create_index(op.f('ix_quarantine_received_at'), 'quarantine', ['received_at'], unique=False)
    op.create_table('rate',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('sku', sa.String(), nullable=False),
    sa.Column('price', Amount(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('charge_basis', sa.String(), nullable=False),
    sa.Column('source', sa.String(), nullable=False),
    sa.Column('valid_from', Utc(), nullable=False),
    sa.Column('valid_to', Utc(), nullable=True),
    sa.Column('imported_at', Utc(), nullable=False),
    sa.CheckConstraint('price >= 0', name=op.f('ck_rate_price_not_negative')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_rate'))
    )
    op.create_index(op.f('ix_rate_kind_sku_valid_from'), 'rate', ['kind', 'sku', 'valid_from'], unique=False)
    op.create_table('running_rate',
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('window_start', Utc(), nullable=False),
    sa.Column('currency', sa.String(length=3), nullable=False),
    sa.Column('source', sa.String(), nullable=False),
    sa.Column('units', postgresql.JSONB(astext_type=sa.Text()), nullable=False),
    sa.PrimaryKeyConstraint('cluster', 'namespace', 'model_id', 'window_start', name=op.f('pk_running_rate'))
    )
    op.create_table('segment_progress',
    sa.Column('topic', sa.String(), nullable=False),
    sa.Column('segment', sa.String(), nullable=False),
    sa.Column('lines', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('updated_at', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('topic', 'segment', name=op.f('pk_segment_progress'))
    )
    op.create_table('standing_limit',
    sa.Column('id', sa.BigInteger(), sa.Identity(always=True), nullable=False),
    sa.Column('scope', sa.String(), nullable=False),
    sa.Column('name', sa.String(), nullable=False),
    sa.Column('value', sa.BigInteger(), nullable=False),
    sa.Column('mode', sa.String(), nullable=False),
    sa.Column('updated_by', sa.String(), nullable=False),
    sa.Column('updated_at', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_standing_limit')),
    sa.UniqueConstraint('scope', 'name', name=op.f('uq_standing_limit_scope_name'))
    )
    op.create_table('stream_state',
    sa.Column('topic', sa.String(), nullable=False),
    sa.Column('catching_up', sa.Boolean(), nullable=False),
    sa.Column('log_lines', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('read_lines', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('fingerprint', sa.String(), server_default='', nullable=False),
    sa.Column('checkpoint', sa.String(), server_default='', nullable=False),
    sa.Column('updated_at', Utc(), nullable=False),
    sa.PrimaryKeyConstraint('topic', name=op.f('pk_stream_state'))
    )
    op.create_table('usage_day',
    sa.Column('day', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('org', sa.String(), nullable=False),
    sa.Column('team', sa.String(), nullable=False),
    sa.Column('project', sa.String(), nullable=False),
    sa.Column('user_id', sa.String(), nullable=False),
    sa.Column('key_id', sa.String(), nullable=False),
    sa.Column('service_tier', sa.String(), nullable=False),
    sa.Column('status', sa.String(), nullable=False),
    sa.Column('usage_source', sa.String(), nullable=False),
    sa.Column('workload_class', sa.SmallInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_uncached', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_read', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_write_5m', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_write_1h', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('output', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('output_reasoning', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prefill_context', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_work_x2', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('duration_ms', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('repeated_input', sa.BigInteger(), server_default='0', nullable=False),
    sa.PrimaryKeyConstraint('day', 'cluster', 'namespace', 'model_id', 'org', 'team', 'project', 'user_id', 'key_id', 'service_tier', 'status', 'usage_source', 'workload_class', name=op.f('pk_usage_day')),
    postgresql_partition_by='RANGE (day)'
    )
    op.create_table('usage_hour',
    sa.Column('hour', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('org', sa.String(), nullable=False),
    sa.Column('team', sa.String(), nullable=False),
    sa.Column('project', sa.String(), nullable=False),
    sa.Column('user_id', sa.String(), nullable=False),
    sa.Column('key_id', sa.String(), nullable=False),
    sa.Column('service_tier', sa.String(), nullable=False),
    sa.Column('status', sa.String(), nullable=False),
    sa.Column('usage_source', sa.String(), nullable=False),
    sa.Column('workload_class', sa.SmallInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_uncached', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_read', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_write_5m', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_write_1h', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('output', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('output_reasoning', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prefill_context', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_work_x2', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('duration_ms', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('repeated_input', sa.BigInteger(), server_default='0', nullable=False),
    sa.PrimaryKeyConstraint('hour', 'cluster', 'namespace', 'model_id', 'org', 'team', 'project', 'user_id', 'key_id', 'service_tier', 'status', 'usage_source', 'workload_class', name=op.f('pk_usage_hour')),
    postgresql_partition_by='RANGE (hour)'
    )
    op.create_table('usage_length_hour',
    sa.Column('hour', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('org', sa.String(), nullable=False),
    sa.Column('kind', sa.String(), nullable=False),
    sa.Column('bucket', sa.SmallInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('tokens', sa.BigInteger(), server_default='0', nullable=False),
    sa.PrimaryKeyConstraint('hour', 'cluster', 'namespace', 'model_id', 'org', 'kind', 'bucket', name=op.f('pk_usage_length_hour')),
    postgresql_partition_by='RANGE (hour)'
    )
    op.create_table('usage_minute',
    sa.Column('minute', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('org', sa.String(), nullable=False),
    sa.Column('team', sa.String(), nullable=False),
    sa.Column('project', sa.String(), nullable=False),
    sa.Column('user_id', sa.String(), nullable=False),
    sa.Column('key_id', sa.String(), nullable=False),
    sa.Column('service_tier', sa.String(), nullable=False),
    sa.Column('status', sa.String(), nullable=False),
    sa.Column('usage_source', sa.String(), nullable=False),
    sa.Column('workload_class', sa.SmallInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_uncached', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_read', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_write_5m', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_write_1h', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('output', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('output_reasoning', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prefill_context', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_work_x2', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('duration_ms', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('repeated_input', sa.BigInteger(), server_default='0', nullable=False),
    sa.PrimaryKeyConstraint('minute', 'cluster', 'namespace', 'model_id', 'org', 'team', 'project', 'user_id', 'key_id', 'service_tier', 'status', 'usage_source', 'workload_class', name=op.f('pk_usage_minute')),
    postgresql_partition_by='RANGE (minute)'
    )
    op.create_index('ix_usage_minute_tenant', 'usage_minute', ['org', 'team', 'minute'], unique=False)
    op.create_table('usage_month',
    sa.Column('month', Utc(), nullable=False),
    sa.Column('cluster', sa.String(), nullable=False),
    sa.Column('namespace', sa.String(), nullable=False),
    sa.Column('model_id', sa.String(), nullable=False),
    sa.Column('org', sa.String(), nullable=False),
    sa.Column('team', sa.String(), nullable=False),
    sa.Column('project', sa.String(), nullable=False),
    sa.Column('user_id', sa.String(), nullable=False),
    sa.Column('key_id', sa.String(), nullable=False),
    sa.Column('service_tier', sa.String(), nullable=False),
    sa.Column('status', sa.String(), nullable=False),
    sa.Column('usage_source', sa.String(), nullable=False),
    sa.Column('workload_class', sa.SmallInteger(), nullable=False),
    sa.Column('requests', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_uncached', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_read', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_write_5m', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('input_cache_write_1h', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('output', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('output_reasoning', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('prefill_context', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('kv_work_x2', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('duration_ms', sa.BigInteger(), server_default='0', nullable=False),
    sa.Column('repeated_input', sa.BigInteger(), server_default='0', nullable=False),
    sa.PrimaryKeyConstraint('month', 'cluster', 'namespace', 'model_id', 'org', 'team', 'project', 'user_id', 'key_id', 'service_tier', 'status', 'usage_source', 'workload_class', name=op.f('pk_usage_month'))
    )
    op.execute("""
        CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$
    """)
    op.execute("""
        CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
        FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()
    """)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table('usage_month')
    op.drop_index('ix_usage_minute_tenant', table_name='usage_minute')
    op.drop_table('usage_minute')
    op.drop_table('usage_length_hour')
    op.drop_table('usage_hour')
    op.drop_table('usage_day')
    op.drop_table('stream_state')
    op.drop_table('standing_limit')
    op.drop_table('segment_progress')
    op.drop_table('running_rate')
    op.drop_index(op.f('ix_rate_kind_sku_valid_from'), table_name='rate')
    op.drop_table('rate')
    op.drop_index(op.f('ix_quarantine_received_at'), table_name='quarantine')
    op.drop_table('quarantine')
    op.drop_table('policy_version')
    op.drop_index(op.f('ix_outbox_state_next_at'), table_name='outbox')
    op.drop_table('outbox')
    op.drop_table('node_service')
    op.drop_table('ledger_window_day')
    op.drop_index('ix_ledger_window_unpriced', table_name='ledger_window', postgresql_where=sa.text('capacity_cost IS NULL'))
    op.drop_index('ix_ledger_window_start', table_name='ledger_window')
    op.drop_table('ledger_window')
    op.drop_table('ledger_line_month')
    op.drop_table('ledger_line_day')
    op.drop_index('ix_ledger_line_window', table_name='ledger_line')
    op.drop_index('ix_ledger_line_tenant', table_name='ledger_line')
    op.drop_table('ledger_line')
    op.drop_table('ledger_kind_hour')
    op.drop_table('ledger_kind_day')
    op.drop_table('ledger_head')
    op.drop_index('ix_ledger_day_tenant', table_name='ledger_day')
    op.drop_table('ledger_day')
    op.drop_table('heartbeat')
    op.drop_table('guard')
    op.drop_table('exemption')
    op.drop_table('engine_minute')
    op.drop_table('engine_hour')
    op.drop_table('engine_day')
    op.drop_table('dirty_window')
    op.drop_index(op.f('ix_data_fault_kind_window_start'), table_name='data_fault')
    op.drop_table('data_fault')
    op.drop_table('cap_increase')
    op.drop_table('budget')
    op.drop_index(op.f('ix_breaker_event_at'), table_name='breaker_event')
    op.drop_table('breaker_event')
    op.drop_table('breaker')
    op.drop_table('audit')
    op.drop_table('applied_file')
    op.drop_table('api_token')
    op.execute("DROP FUNCTION audit_is_append_only()")
